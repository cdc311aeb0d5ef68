// SPDX-License-Identifier: Apache-2.0

// Package inspect answers who of a node's pods is served by the library. It looks when it is asked, and changes
// nothing.
package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/attach"
	"splitfs.io/splitfs/csi-driver/internal/coverage"
	"splitfs.io/splitfs/csi-driver/internal/driverinfo"
	"splitfs.io/splitfs/csi-driver/internal/node"
	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

const (
	// lookTimeout bounds one look, cacheFor spares the node when several ask at once.
	lookTimeout = 10 * time.Second
	cacheFor    = 500 * time.Millisecond
)

// Volumes is where the state of volumes comes from.
type Volumes interface {
	Name() string
	Reports(ctx context.Context) ([]node.Report, error)
	Jobs(reports []node.Report) ([]*volume.Record, error)
}

// Processes is where the processes come from.
type Processes interface {
	Look() ([]attach.Finding, error)
}

// Inspector looks at one node.
type Inspector struct {
	volumes   Volumes
	processes Processes
	now       func() time.Time

	mu   sync.Mutex
	last *coverage.Node
}

// New returns an Inspector.
func New(volumes Volumes, processes Processes) *Inspector {
	return &Inspector{volumes: volumes, processes: processes, now: time.Now}
}

// CheckEndpoint refuses an address that others than the pod itself could reach: what is said there of processes is not
// for everybody.
func CheckEndpoint(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is no address with a port: %w", address, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("%q is no loopback address, as 127.0.0.1:%d is; others must not reach it", address, coverage.Port)
	}
	return nil
}

// Handler serves coverage.Path, and with advice coverage.AdvicePath.
func (i *Inspector) Handler(advice http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+coverage.AdvicePath, advice)
	mux.HandleFunc("GET "+coverage.Path, func(w http.ResponseWriter, r *http.Request) {
		text, err := json.Marshal(i.Look(r.Context()))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write(text); err != nil {
			klog.FromContext(r.Context()).V(4).Info("Whoever asked has gone", "err", err)
		}
	})
	return mux
}

// Look says who is served now.
func (i *Inspector) Look(ctx context.Context) *coverage.Node {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.last != nil && i.now().Sub(i.last.Time) < cacheFor {
		return i.last
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	answer := &coverage.Node{
		Node: i.volumes.Name(), Driver: driverinfo.Version, Time: i.now(), Volumes: []coverage.Volume{},
	}
	reports, reportErr := i.volumes.Reports(ctx)
	findings, findErr := i.processes.Look()
	for _, r := range reports {
		if r.Record.Staged == nil || r.Record.Block { // nobody is served
			continue
		}
		answer.Volumes = append(answer.Volumes, describe(&r, findings))
	}
	jobs, jobErr := i.volumes.Jobs(reports)
	for _, rec := range jobs {
		answer.Jobs = append(answer.Jobs, coverage.Job{
			ID: rec.ID, Namespace: rec.PVC.Namespace, Claim: rec.PVC.Name, Kind: string(rec.Job.Kind), DoneBytes: rec.Job.Done,
			TotalBytes: rec.Job.Total,
		})
	}
	if err := errors.Join(reportErr, findErr, jobErr); err != nil {
		answer.Incomplete = err.Error()
	}
	if ctx.Err() == nil { // else the next one is not to be told what was cut short for this one
		i.last = answer
	}
	return answer
}

// process is one that was found to have the volume, before its lease is looked for.
func process(f attach.Finding) coverage.Process {
	p := coverage.Process{
		PID: f.PID, Command: f.Command, Namespace: f.Pod.Namespace, Pod: f.Pod.Name, PodUID: f.Pod.UID,
		Container: f.Container, State: string(f.State), Open: f.Open,
	}
	if f.State != attach.Loaded {
		p.Cause = f.State.Explain()
	}
	return p
}

func latencies(from map[string]map[string]splitfs.Latency) coverage.Latencies {
	to := coverage.Latencies{}
	for mode, calls := range from {
		to[mode] = map[string]coverage.Latency{}
		for call, l := range calls {
			to[mode][call] = coverage.Latency{Timed: l.Timed, Buckets: l.Buckets}
		}
	}
	return to
}

func describe(r *node.Report, findings []attach.Finding) coverage.Volume {
	v := coverage.Volume{
		ID: r.Record.ID, Namespace: r.Record.PVC.Namespace, Claim: r.Record.PVC.Name, Mode: string(r.Record.Mode),
		Device: r.Record.Device, FSType: r.Record.FSType, Emulated: r.Emulated, Root: r.Record.Staged.Path,
		AgentReady: r.Agent.Ready, Processes: []coverage.Process{},
	}
	for _, p := range r.Problems {
		v.Problems = append(v.Problems, p.Reason+": "+p.Message)
	}
	if r.StatusErr != nil {
		v.Unknown = r.StatusErr.Error()
	}
	served := map[int]splitfs.Process{}
	if s := r.Status; s != nil {
		v.Provider, v.Totals, v.Latency = s.Provider, s.Totals, latencies(s.Latency)
		v.Pool = coverage.Pool{Bytes: s.Pool.Bytes, FreeBytes: s.Pool.FreeBytes}
		v.Recovery = coverage.Recovery{
			Runs: s.Recovery.Runs, Replayed: s.Recovery.Replayed, Quarantined: s.Recovery.Quarantined,
		}
		for _, b := range s.Blocked.Now {
			v.Blocked = append(v.Blocked, coverage.Blocked(b))
		}
		for _, p := range s.Unserved.Processes {
			v.Unserved = append(v.Unserved, coverage.Unserved{
				PodUID: p.Pod, PID: p.PID, Did: p.Did, Opens: p.Opens, Seconds: p.Seconds, Program: p.Program, Path: p.Path,
			})
		}
		for _, p := range s.Processes {
			if p.Alive {
				served[p.PID] = p
			} else {
				v.Recovery.Pending++
			}
		}
	}
	for _, f := range findings {
		if f.Volume.ID != v.ID {
			continue
		}
		p := process(f)
		if lease, ok := served[f.PID]; ok {
			p.Mode, p.Counters = lease.Mode, lease.Counters
			delete(served, f.PID)
		}
		v.Processes = append(v.Processes, p)
	}
	// Of no pod that is known here: one that has just started, or the volume was taken from its pod meanwhile.
	for _, p := range served {
		v.Processes = append(v.Processes, coverage.Process{
			PID: p.PID, Command: attach.Printable(p.Comm), State: coverage.StateLoaded, Mode: p.Mode, Counters: p.Counters,
		})
	}
	slices.SortFunc(v.Processes, func(a, b coverage.Process) int { return a.PID - b.PID })
	return v
}
