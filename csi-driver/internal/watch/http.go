// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/coverage"
)

var uidForm = regexp.MustCompile(`^[0-9a-f-]{36}$`)

// ServeHTTP serves coverage.AdvicePath.
func (w *Watcher) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	uid := r.URL.Query().Get("pod")
	seconds, err := strconv.Atoi(r.URL.Query().Get("seconds"))
	if err != nil || seconds < 1 || seconds > coverage.MaxWatchSeconds || !uidForm.MatchString(uid) {
		http.Error(rw, "wanted: pod=UID and seconds=1 to "+strconv.Itoa(coverage.MaxWatchSeconds), http.StatusBadRequest)
		return
	}
	answer, err := w.Watch(r.Context(), uid, time.Duration(seconds)*time.Second)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(rw).Encode(answer); err != nil {
		klog.FromContext(r.Context()).V(4).Info("Whoever asked has gone", "err", err)
	}
}
