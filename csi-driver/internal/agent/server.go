// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"k8s.io/klog/v2"
)

// The node service asks the Supervisor by HTTP on a Unix socket that only root can connect to. Both may be of different
// versions: fields that one does not know it leaves out.
const (
	volumesPath = "/v1/volumes"
	// longestPoll is how long a request for changes waits for one.
	longestPoll = 20 * time.Second
	largestBody = 1 << 20
)

// Handler serves the node service.
func (s *Supervisor) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+volumesPath, s.serveList)
	mux.HandleFunc("PUT "+volumesPath+"/{id}", s.serveWatch)
	mux.HandleFunc("DELETE "+volumesPath+"/{id}", s.serveStop)
	return mux
}

// serveList answers with the state of all agents, as soon as it is another one than the caller knows.
func (s *Supervisor) serveList(w http.ResponseWriter, r *http.Request) {
	known := r.URL.Query().Get("known")
	deadline := time.NewTimer(longestPoll)
	defer deadline.Stop()
	for {
		all, changed := s.snapshot()
		if known == all.version() {
			select {
			case <-changed:
				continue
			case <-r.Context().Done():
				return
			case <-deadline.C:
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(all); err != nil {
			klog.FromContext(s.ctx).V(4).Info("A reader of the agents' state went away", "err", err)
		}
		return
	}
}

// version names a snapshot.
func (s snapshot) version() string { return s.Instance + "." + strconv.FormatInt(s.Revision, 10) }

func (s *Supervisor) serveWatch(w http.ResponseWriter, r *http.Request) {
	var v Volume
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, largestBody)).Decode(&v); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := s.Watch(r.PathValue("id"), v); err != nil {
		http.Error(w, err.Error(), statusOf(err, http.StatusConflict))
	}
}

func (s *Supervisor) serveStop(w http.ResponseWriter, r *http.Request) {
	// A caller that goes away does not keep the agent: it is told to end already.
	ctx, cancel := context.WithTimeout(r.Context(), s.config.StopTimeout+10*time.Second)
	defer cancel()
	if err := s.Stop(ctx, r.PathValue("id")); err != nil {
		http.Error(w, err.Error(), statusOf(err, http.StatusInternalServerError))
	}
}

// statusOf is an error's HTTP status, which is another one where it is worth to try again.
func statusOf(err error, status int) int {
	if errors.Is(err, errStopping) || errors.Is(err, errEnding) {
		return http.StatusServiceUnavailable
	}
	return status
}
