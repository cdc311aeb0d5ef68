// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// execs is an API server that runs a command in a pod: it says what it was asked for, and ends with an exit code.
type execs struct{ code int }

func (e *execs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "SPDY/3.1") {
		http.Error(w, "unable to upgrade: unknown protocol", http.StatusBadRequest)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{remotecommand.StreamProtocolV4Name}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 3)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	status := metav1.Status{Status: metav1.StatusSuccess}
	if e.code != 0 {
		status = metav1.Status{Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
			Message: fmt.Sprintf("exit code %d", e.code),
			Details: &metav1.StatusDetails{
				Causes: []metav1.StatusCause{{Type: remotecommand.ExitCodeCauseType, Message: fmt.Sprint(e.code)}},
			}}
	}
	says := map[string]string{
		corev1.StreamTypeStdout: fmt.Sprint(r.URL.Path, " ", r.URL.Query()["container"], r.URL.Query()["command"]),
		corev1.StreamTypeStderr: "splitfs: something",
	}
	var errorStream httpstream.Stream
	for range 3 {
		s := <-streams
		if kind := s.Headers().Get(corev1.StreamType); kind == corev1.StreamTypeError {
			errorStream = s
		} else {
			fmt.Fprint(s, says[kind])
			s.Close()
		}
	}
	json.NewEncoder(errorStream).Encode(status) //nolint:errcheck // the client says so
	errorStream.Close()
	<-conn.CloseChan()
}

// TestRun: a command runs in the node service's container, with each argument as it is; what it says on both streams
// comes back, and that it failed.
func TestRun(t *testing.T) {
	for _, code := range []int{0, 1} {
		server := httptest.NewServer(&execs{code: code})
		defer server.Close()
		stdout, stderr, err := newForwarder(&rest.Config{Host: server.URL}).Run(t.Context(), nodePod, "splitfs", "recover",
			"/a b", "--json")
		if stdout != "/api/v1/namespaces/splitfs-system/pods/splitfs-node.1/exec [splitfs] [splitfs recover /a b --json]" ||
			stderr != "splitfs: something" {
			t.Errorf("said %q and %q", stdout, stderr)
		}
		if (err != nil) != (code != 0) ||
			err != nil && !strings.Contains(
				err.Error(), "pod splitfs-system/splitfs-node.1: command terminated with exit code 1") {
			t.Errorf("exit code %d: %v", code, err)
		}
	}
}
