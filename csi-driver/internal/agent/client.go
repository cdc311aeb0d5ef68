// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// requestTimeout bounds every request that does not wait for an agent.
	requestTimeout = 5 * time.Second
	// reconnectPause is between two tries to reach a supervisor that does not answer.
	reconnectPause = 200 * time.Millisecond
)

// Client is the node service's side of a Supervisor in another process. It follows the state of the agents, and asks
// again for all volumes that are to be served whenever the Supervisor does not serve one: it may have lost its memory.
type Client struct {
	http    *http.Client
	onDeath func(ctx context.Context, id string, err error)
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu      sync.Mutex
	wanted  map[string]Volume
	known   snapshot
	away    error         // why the Supervisor cannot be asked
	changed chan struct{} // closed and replaced at every change of known and away
}

// NewClient follows the Supervisor that listens at socket until ctx is done. onDeath is told of agents that ended
// without being asked to.
func NewClient(ctx context.Context, socket string, onDeath func(ctx context.Context, id string, err error)) *Client {
	ctx, cancel := context.WithCancel(ctx)
	c := &Client{
		http: &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			},
		}},
		onDeath: onDeath, ctx: ctx, cancel: cancel, wanted: map[string]Volume{}, changed: make(chan struct{}),
		away: errors.New("the supervisor of the agents was not reached yet"),
	}
	c.wg.Go(c.follow)
	return c
}

// Shutdown ends following. Agents go on.
func (c *Client) Shutdown() {
	c.cancel()
	c.wg.Wait()
	c.http.CloseIdleConnections()
}

// Watch keeps a volume served and returns at once, also while the Supervisor does not answer.
func (c *Client) Watch(id string, v Volume) error {
	c.mu.Lock()
	c.wanted[id] = v
	c.mu.Unlock()
	err := c.put(c.ctx, id, v)
	if err != nil && isRefusal(err) {
		return err
	}
	if err != nil {
		klog.FromContext(c.ctx).Error(err, "Will ask for the agent later", "volume-id", id)
	}
	return nil
}

// Update changes what a volume is served with, and whom it is shown to. That is done when it returns.
func (c *Client) Update(ctx context.Context, id string, v Volume) error {
	c.mu.Lock()
	c.wanted[id] = v
	c.mu.Unlock()
	return c.put(ctx, id, v)
}

// Start keeps a volume served and waits until its agent is ready. When the first agent fails the volume is not kept.
func (c *Client) Start(ctx context.Context, id string, v Volume) error {
	before, err := c.list(ctx, "")
	if err != nil {
		return err
	}
	if err := c.put(ctx, id, v); err != nil {
		return err
	}
	for known := ""; ; {
		all, err := c.list(ctx, known)
		if err != nil {
			return errors.Join(fmt.Errorf("agent of volume %s: %w", id, err), c.stopDetached(ctx, id))
		}
		known = all.version()
		state := all.Volumes[id].toState()
		if state.Ready {
			c.mu.Lock()
			c.wanted[id] = v
			c.mu.Unlock()
			return nil
		}
		if state.Restarts > before.Volumes[id].Restarts {
			return errors.Join(fmt.Errorf("agent of volume %s: %w", id, state.LastError), c.stopDetached(ctx, id))
		}
	}
}

// stopDetached undoes what a caller began that may have gone.
func (c *Client) stopDetached(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return c.Stop(ctx, id)
}

// WaitReady waits until a watched volume's agent is ready.
func (c *Client) WaitReady(ctx context.Context, id string) error {
	return waitReady(ctx, id, func() (State, bool, <-chan struct{}) {
		c.mu.Lock()
		defer c.mu.Unlock()
		state, ok := c.state(id)
		return state, ok, c.changed
	})
}

// Stop ends a volume's agent and returns when its process is gone. It is no error when there is none.
func (c *Client) Stop(ctx context.Context, id string) error {
	c.mu.Lock()
	delete(c.wanted, id)
	c.mu.Unlock()
	if err := c.do(ctx, http.MethodDelete, volumesPath+"/"+url.PathEscape(id), nil, nil); err != nil {
		return fmt.Errorf("stop the agent of volume %s: %w", id, err)
	}
	return nil
}

// State returns what was last heard of a volume's agent; ok is false when the volume is not watched.
func (c *Client) State(id string) (state State, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state(id)
}

func (c *Client) state(id string) (State, bool) {
	heard, served := c.known.Volumes[id]
	_, wanted := c.wanted[id]
	state := heard.toState()
	if c.away != nil {
		state.Ready, state.LastError = false, c.away
	}
	return state, served || wanted
}

// Ready asks whether a volume's agent serves it now.
func (c *Client) Ready(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	all, err := c.list(ctx, "")
	if err != nil {
		return false, err
	}
	return all.Volumes[id].Ready, nil
}

// follow keeps what is known of the agents up to date.
func (c *Client) follow() {
	first := true
	for known := ""; c.ctx.Err() == nil; {
		ctx, cancel := context.WithTimeout(c.ctx, longestPoll+requestTimeout)
		all, err := c.list(ctx, known)
		cancel()
		if err != nil {
			known = ""
			c.heard(snapshot{}, err)
			select {
			case <-c.ctx.Done():
			case <-time.After(reconnectPause):
			}
			continue
		}
		known = all.version()
		before := c.heard(all, nil)
		if !first {
			c.tellDeaths(before, all)
		}
		first = false
		c.askForMissing(all)
	}
}

// heard takes what the Supervisor said, or why it did not, and returns what was known before.
func (c *Client) heard(all snapshot, err error) (before snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.away == nil && c.ctx.Err() == nil {
		klog.FromContext(c.ctx).Error(err, "The supervisor of the agents does not answer")
	}
	before, c.away = c.known, err
	if err == nil {
		c.known = all
	}
	close(c.changed)
	c.changed = make(chan struct{})
	return before
}

// tellDeaths compares two snapshots. Where the Supervisor itself was replaced nothing is said of its agents, which
// ended with it.
func (c *Client) tellDeaths(before, all snapshot) {
	if c.onDeath == nil || before.Instance != all.Instance {
		return
	}
	for id, state := range all.Volumes {
		if last, ok := before.Volumes[id]; ok && state.Restarts > last.Restarts {
			c.onDeath(c.ctx, id, state.toState().LastError)
		}
	}
}

func (c *Client) askForMissing(all snapshot) {
	c.mu.Lock()
	missing := map[string]Volume{}
	for id, v := range c.wanted {
		if _, ok := all.Volumes[id]; !ok {
			missing[id] = v
		}
	}
	c.mu.Unlock()
	for id, v := range missing {
		if err := c.askFor(id, v); err != nil {
			klog.FromContext(c.ctx).Error(err, "Cannot have a volume served", "volume-id", id)
		}
	}
}

// askFor has a volume served as it is wanted now. Others who change that meanwhile may be answered before.
func (c *Client) askFor(id string, v Volume) error {
	for {
		if err := c.put(c.ctx, id, v); err != nil {
			return err
		}
		c.mu.Lock()
		now, still := c.wanted[id]
		c.mu.Unlock()
		switch {
		case !still: // it was stopped while it was asked for
			return c.stopDetached(c.ctx, id)
		case reflect.DeepEqual(now, v):
			return nil
		}
		v = now
	}
}

func (c *Client) put(ctx context.Context, id string, v Volume) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("agent of volume %s: %w", id, err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := c.do(ctx, http.MethodPut, volumesPath+"/"+url.PathEscape(id), body, nil); err != nil {
		return fmt.Errorf("agent of volume %s: %w", id, err)
	}
	return nil
}

// list returns the state of all agents once it is another one than known.
func (c *Client) list(ctx context.Context, known string) (snapshot, error) {
	var all snapshot
	err := c.do(ctx, http.MethodGet, volumesPath+"?known="+url.QueryEscape(known), nil, &all)
	return all, err
}

// refusal is an answer of the Supervisor that says no.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

func isRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://agents"+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask the supervisor of the agents: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask the supervisor of the agents: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
		said := strings.TrimSpace(string(text))
		if resp.StatusCode == http.StatusServiceUnavailable {
			return errors.Join(errors.New(said), err)
		}
		return errors.Join(&refusal{said}, err)
	}
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("the answer of the agents' supervisor: %w", err)
	}
	return nil
}
