// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/csi-driver/internal/coverage"
)

// maxAnswer bounds what a node service may answer.
const maxAnswer = 64 << 20

// nodeContainer is the node service's container in its pod.
const nodeContainer = "splitfs"

// forwarder reaches node services through the API server and kubelet, as `kubectl port-forward` does: no address of a
// pod has to be reachable from here, and the service listens to nobody else. A connection is kept for the next
// question.
type forwarder struct {
	config *rest.Config
	http   *http.Client
}

var _ asker = (*forwarder)(nil)

func newForwarder(config *rest.Config) *forwarder {
	f := &forwarder{config: config}
	f.http = &http.Client{
		Transport: &http.Transport{
			DialContext: f.dial, DisableCompression: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute,
		},
	}
	return f
}

// Coverage implements asker.
func (f *forwarder) Coverage(ctx context.Context, pod client.ObjectKey) (*coverage.Node, error) {
	answer := &coverage.Node{}
	return answer, f.get(ctx, pod, coverage.Path, answer)
}

// Advice implements asker.
func (f *forwarder) Advice(ctx context.Context, pod client.ObjectKey, uid string,
	seconds int) (*coverage.Advice, error) {
	answer := &coverage.Advice{}
	return answer, f.get(ctx, pod, fmt.Sprintf("%s?pod=%s&seconds=%d", coverage.AdvicePath, uid, seconds), answer)
}

// get asks a node service and decodes its JSON.
func (f *forwarder) get(ctx context.Context, pod client.ObjectKey, path string, answer any) error {
	// The name of a pod may have dots, that of a namespace has none: dial takes them apart again.
	url := fmt.Sprintf("http://%s.%s:%d%s", pod.Name, pod.Namespace, coverage.Port, path)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := f.http.Do(request)
	if err != nil {
		return fmt.Errorf("pod %s, port %d (the chart's value plugin.inspect): %w", pod, coverage.Port, err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("pod %s: read the answer: %w", pod, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("pod %s answers %s: %s", pod, response.Status, bytes.TrimSpace(body))
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("pod %s: its answer is no JSON of ours: %w", pod, err)
	}
	return nil
}

// dial forwards one connection to a port of a pod.
func (f *forwarder) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	dot := strings.LastIndexByte(host, '.')
	if dot < 0 {
		return nil, fmt.Errorf("%q names no pod and namespace", host)
	}
	dialer, err := f.dialer(client.ObjectKey{Namespace: host[dot+1:], Name: host[:dot]})
	if err != nil {
		return nil, err
	}
	type result struct {
		conn httpstream.Connection
		err  error
	}
	// The dialer knows no context: what it brings after the end of this one is closed again.
	done := make(chan result, 1)
	go func() {
		conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		done <- result{conn, err}
	}()
	select {
	case <-ctx.Done():
		go func() {
			if late := <-done; late.conn != nil {
				late.conn.Close() //nolint:errcheck // nobody uses it
			}
		}()
		return nil, ctx.Err()
	case r := <-done:
		if r.err != nil {
			return nil, r.err
		}
		forwarded, err := newForwarded(r.conn, port)
		if err != nil {
			return nil, errors.Join(err, r.conn.Close())
		}
		return forwarded, nil
	}
}

// dialer takes a WebSocket, and SPDY where the API server, or a proxy before it, knows no WebSocket.
func (f *forwarder) dialer(pod client.ObjectKey) (httpstream.Dialer, error) {
	core, err := corev1client.NewForConfig(f.config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	url := core.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").
		URL()
	transport, upgrader, err := spdy.RoundTripperFor(f.config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	webSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, f.config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return portforward.NewFallbackDialerForStreaming(webSocket,
		spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url), fallBack), nil
}

func fallBack(err error) bool {
	return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
}

// forwarded is one forwarded connection: a stream of data, and one by which kubelet says what is wrong.
type forwarded struct {
	httpstream.Stream
	conn   httpstream.Connection
	failed chan error
}

func newForwarded(conn httpstream.Connection, port string) (*forwarded, error) {
	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, port)
	headers.Set(corev1.PortForwardRequestIDHeader, strconv.Itoa(0))
	errorStream, err := conn.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("forward port %s: %w", port, err)
	}
	if err := errorStream.Close(); err != nil { // of what is sent on it
		return nil, fmt.Errorf("forward port %s: %w", port, err)
	}
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := conn.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("forward port %s: %w", port, err)
	}
	f := &forwarded{Stream: data, conn: conn, failed: make(chan error, 1)}
	go func() {
		text, err := io.ReadAll(io.LimitReader(errorStream, 4096))
		if err == nil && len(text) > 0 {
			err = errors.New(string(bytes.TrimSpace(text)))
		}
		f.failed <- err
		if err != nil {
			data.Reset() //nolint:errcheck // whoever reads is told the cause
		}
	}()
	return f, nil
}

// Read implements net.Conn. The end of the data is told by its cause, where kubelet has said one.
func (f *forwarded) Read(p []byte) (int, error) {
	n, err := f.Stream.Read(p)
	if err != nil && n == 0 {
		select {
		case cause := <-f.failed:
			if cause != nil {
				return 0, cause
			}
		case <-time.After(100 * time.Millisecond):
		}
	}
	return n, err
}

// Close implements net.Conn.
func (f *forwarded) Close() error { return errors.Join(f.Reset(), f.conn.Close()) }

// Addresses mean nothing here, and deadlines are those of the request's context, at whose end the connection is closed.
func (f *forwarded) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (f *forwarded) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (f *forwarded) SetDeadline(time.Time) error      { return nil }
func (f *forwarded) SetReadDeadline(time.Time) error  { return nil }
func (f *forwarded) SetWriteDeadline(time.Time) error { return nil }

// Run implements asker.
func (f *forwarder) Run(ctx context.Context, pod client.ObjectKey,
	command ...string) (stdout, stderr string, err error) {
	core, err := corev1client.NewForConfig(f.config)
	if err != nil {
		return "", "", fmt.Errorf("connect to the API server: %w", err)
	}
	url := core.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: nodeContainer, Command: command, Stdout: true, Stderr: true},
			clientgoscheme.ParameterCodec).URL()
	overSPDY, err := remotecommand.NewSPDYExecutor(f.config, http.MethodPost, url)
	if err != nil {
		return "", "", fmt.Errorf("connect to the API server: %w", err)
	}
	overWebSocket, err := remotecommand.NewWebSocketExecutor(f.config, http.MethodGet, url.String())
	if err != nil {
		return "", "", fmt.Errorf("connect to the API server: %w", err)
	}
	executor, err := remotecommand.NewFallbackExecutor(overWebSocket, overSPDY, fallBack)
	if err != nil {
		return "", "", fmt.Errorf("connect to the API server: %w", err)
	}
	var out, errOut bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut})
	if err != nil {
		err = fmt.Errorf("run %s in pod %s: %w", command[0], pod, err)
	}
	return out.String(), errOut.String(), err
}
