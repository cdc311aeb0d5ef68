// SPDX-License-Identifier: Apache-2.0

package node

import (
	"sync"
	"time"
)

// sightings remembers since when this process sees things as they are, on a clock that nobody sets. The times of files
// are no help there: where the node's clock was set forward, what was made a moment ago looks old, and would be removed
// although somebody is about to use it.
type sightings struct {
	mu    sync.Mutex
	since map[string]sighting
}

type sighting struct {
	state string
	at    time.Time // with a monotonic reading
}

func newSightings() *sightings { return &sightings{since: map[string]sighting{}} }

// age returns for how long a thing has been seen in this state; 0 the first time.
func (s *sightings) age(thing, state string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, known := s.since[thing]
	if !known || seen.state != state {
		seen = sighting{state: state, at: time.Now()}
		s.since[thing] = seen
	}
	return time.Since(seen.at)
}

// forget has the next look be the first.
func (s *sightings) forget(things ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, thing := range things {
		delete(s.since, thing)
	}
}
