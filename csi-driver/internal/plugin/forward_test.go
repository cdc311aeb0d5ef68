// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/csi-driver/internal/coverage"
)

// forwards is an API server that forwards ports over SPDY, as one does that knows no WebSocket.
type forwards struct {
	// to is where the port of the pod leads; refuse is what kubelet says instead.
	to          string
	refuse      string
	connections atomic.Int32
}

func (f *forwards) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/api/v1/namespaces/splitfs-system/pods/splitfs-node.1/portforward" {
		http.NotFound(w, r)
		return
	}

	if httpstream.IsUpgradeRequest(r) && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		http.Error(w, "unable to upgrade: unknown protocol", http.StatusBadRequest)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		return
	}
	f.connections.Add(1)
	streams := make(chan httpstream.Stream, 2)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	errorStream, data := <-streams, <-streams
	if errorStream.Headers().Get(corev1.StreamType) != corev1.StreamTypeError ||
		data.Headers().Get(corev1.PortHeader) != fmt.Sprint(coverage.Port) {
		return
	}
	if f.refuse != "" {
		fmt.Fprint(errorStream, f.refuse)
		errorStream.Close()
		data.Close()
		<-conn.CloseChan()
		return
	}
	target, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", f.to)
	if err != nil {
		return
	}
	defer target.Close()
	go io.Copy(target, data) //nolint:errcheck // ends with the connection
	go io.Copy(data, target) //nolint:errcheck // the same
	<-conn.CloseChan()
}

func newForwards(t *testing.T, answer http.HandlerFunc) (*forwards, *forwarder) {
	t.Helper()
	service := httptest.NewServer(answer)
	t.Cleanup(service.Close)
	f := &forwards{to: service.Listener.Addr().String()}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, newForwarder(&rest.Config{Host: server.URL})
}

var nodePod = client.ObjectKey{Namespace: "splitfs-system", Name: "splitfs-node.1"}

// TestForward: a node service is asked through a forwarded port, again over the same connection.
func TestForward(t *testing.T) {
	f, forwarder := newForwards(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"node":"n1 by %s"}`, r.URL.Path)
	})
	for range 3 {
		answer, err := forwarder.Coverage(t.Context(), nodePod)
		if err != nil || answer.Node != "n1 by "+coverage.Path {
			t.Fatalf("%+v, %v", answer, err)
		}
	}
	if n := f.connections.Load(); n != 1 {
		t.Errorf("%d connections for three questions", n)
	}
}

// TestForwardFailures: what is wrong comes from who knows it.
func TestForwardFailures(t *testing.T) {
	f, forwarder := newForwards(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not today", http.StatusTeapot)
	})
	if _, err := forwarder.Coverage(t.Context(), nodePod); err == nil || !strings.Contains(err.Error(), "not today") {
		t.Errorf("an error of the service: %v", err)
	}
	if _, err := forwarder.Coverage(t.Context(), client.ObjectKey{Namespace: "other", Name: "pod"}); err == nil ||
		!strings.Contains(err.Error(), "pod other/pod") {
		t.Errorf("a pod that is not there: %v", err)
	}
	forwarder.http.CloseIdleConnections()
	f.refuse = "dial tcp4 127.0.0.1:9815: connect: connection refused"
	if _, err := forwarder.Coverage(t.Context(), nodePod); err == nil ||
		!strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), "plugin.inspect") {
		t.Errorf("nobody listens: %v", err)
	}
}

// TestForwardHangs: a node service that does not answer is waited for as long as the caller says.
func TestForwardHangs(t *testing.T) {
	release := make(chan struct{})
	_, forwarder := newForwards(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := forwarder.Coverage(ctx, nodePod); !errors.Is(err, context.DeadlineExceeded) ||
		time.Since(start) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}
