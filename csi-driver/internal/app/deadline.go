// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"io"
	"net/http"
	"time"
)

// apiDeadline is how long a request to the API server may take. Watches last, so they are not limited; they end with
// their connection.
const apiDeadline = 15 * time.Second

// deadline limits requests: an API server that takes them and never answers must not hold anything up.
type deadline struct{ next http.RoundTripper }

func withDeadline(next http.RoundTripper) http.RoundTripper { return deadline{next} }

func (d deadline) RoundTrip(r *http.Request) (*http.Response, error) {
	if watch := r.URL.Query().Get("watch"); watch == "true" || watch == "1" {
		return d.next.RoundTrip(r)
	}
	ctx, cancel := context.WithTimeout(r.Context(), apiDeadline)
	resp, err := d.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &limitedBody{resp.Body, cancel}
	return resp, nil
}

// limitedBody is an answer whose deadline goes with it.
type limitedBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *limitedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
