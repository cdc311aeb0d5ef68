// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// A Supervisor hands its volumes over to the next one, which runs in another container already: for each it ends the
// agent and sends the listening socket, in which programs wait until the successor's agent serves it, and the gate, at
// which their opens wait.

const (
	takeRequest = "take"
	// withGate follows it: the successor knows gates. One that does not takes a message with one descriptor only.
	withGate = " gate"
	// handoverTimeout bounds each message between two supervisors; an agent is ended in between.
	handoverTimeout = 30 * time.Second
	largestMessage  = 64 << 10
)

// handed is one message of a handover; with the descriptors of the socket and, where there is one, of the gate, or, as
// the last one, without an ID.
type handed struct {
	ID    string `json:"id,omitempty"`
	Entry entry  `json:"entry,omitzero"`
	Bound string `json:"bound,omitempty"`
	Name  string `json:"name,omitempty"`
}

// ListenForSuccessor makes the socket of ServeHandover.
func ListenForSuccessor(path string) (*net.UnixListener, error) {
	if err := remove(path); err != nil {
		return nil, fmt.Errorf("listen for the next supervisor: %w", err)
	}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("listen for the next supervisor: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for the next supervisor: %w", err), listener.Close())
	}
	return listener, nil
}

// ServeHandover waits for a successor, calls begin, and hands all volumes over. It returns when the successor has
// ended, or with an error when it did not get everything: what is left then has to be restored. It returns nil when ctx
// is done.
func (s *Supervisor) ServeHandover(ctx context.Context, listener *net.UnixListener, begin func()) error {
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for ctx.Err() == nil {
		conn, err := listener.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("wait for the next supervisor: %w", err)
		}
		request := make([]byte, len(takeRequest+withGate))
		_ = conn.SetDeadline(time.Now().Add(time.Second)) // a socket that is open has deadlines
		n, err := conn.Read(request)
		said := string(request[:n])
		if err != nil || said != takeRequest && said != takeRequest+withGate {
			_ = conn.Close()
			continue
		}
		// Whoever comes from now on finds the successor.
		err = listener.Close()
		begin()
		return errors.Join(err, s.handOverTo(ctx, conn, said == takeRequest+withGate))
	}
	return nil
}

// handOverTo hands all volumes over and waits for the end of who has got them.
func (s *Supervisor) handOverTo(ctx context.Context, conn *net.UnixConn, gates bool) error {
	defer conn.Close() //nolint:errcheck // nothing is left to be written
	klog.FromContext(ctx).Info("Handing all volumes over to the next supervisor")
	if err := s.handOverAll(conn, gates); err != nil {
		return fmt.Errorf("hand over to the next supervisor: %w", err)
	}
	klog.FromContext(ctx).Info("The next supervisor has all volumes")
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Time{})
	for {
		// Nothing is ever sent: this is how its end is seen.
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			return nil
		}
	}
}

func (s *Supervisor) handOverAll(conn *net.UnixConn, gates bool) error {
	s.change.Lock()
	defer s.change.Unlock()
	s.handedOver = true
	kept, stopped := s.workers()
	for _, w := range kept {
		socket := w.endForSuccessor()
		s.mu.Lock()
		delete(s.agents, w.id)
		s.mu.Unlock()
		if socket == nil {
			continue // it never had one; it is on disk
		}
		message := handed{ID: w.id, Entry: w.remembered(), Bound: socket.bound, Name: socket.name}
		files := []*os.File{socket.file}
		if gates {
			files = append(files, w.gate.files()...)
		}
		if err := errors.Join(send(conn, message, files...), socket.file.Close(), w.gate.close()); err != nil {
			return err
		}
	}
	// Who asks the successor for their end, as the one asked here got no answer, is told that there is none.
	for _, w := range stopped {
		<-w.done
	}
	return send(conn, handed{})
}

// workers returns those that keep volumes served, and those that were told to end. s.change is held.
func (s *Supervisor) workers() (kept, stopped []*worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.agents {
		if w.stopped {
			stopped = append(stopped, w)
		} else {
			kept = append(kept, w)
		}
	}
	return kept, stopped
}

// endForSuccessor ends the agent and returns the socket, which stays as it is; nil when there is none.
func (w *worker) endForSuccessor() *socket {
	w.mu.Lock()
	w.handing = true
	w.mu.Unlock()
	w.cancel()
	<-w.done
	return w.socket
}

func send(conn *net.UnixConn, message handed, files ...*os.File) error {
	content, err := json.Marshal(message)
	if err != nil {
		return err
	}
	fds := make([]int, 0, mostFiles)
	for _, file := range files {
		fds = append(fds, int(file.Fd()))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if err := conn.SetDeadline(time.Now().Add(handoverTimeout)); err != nil {
		return err
	}
	_, _, err = conn.WriteMsgUnix(content, rights, nil)
	return err
}

// TakeOver asks the supervisor that listens at path for its volumes and serves them. Without one it does nothing. The
// connection that it returns has to stay open as long as this supervisor lives; nil: there is none.
func (s *Supervisor) TakeOver(path string) (io.Closer, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take over from the supervisor before: %w", err)
	}
	if _, err := conn.Write([]byte(takeRequest + withGate)); err != nil {
		return conn, fmt.Errorf("take over from the supervisor before: %w", err)
	}
	for {
		message, files, err := receive(conn)
		if err != nil {
			return conn, fmt.Errorf("take over from the supervisor before: %w", err)
		}
		if message.ID == "" {
			return conn, nil
		}
		if len(files) == 0 {
			return conn, fmt.Errorf("take over from the supervisor before: volume %s came without its socket", message.ID)
		}
		klog.FromContext(s.ctx).Info("Taking over", "volume-id", message.ID)
		if err := s.adopt(message, files); err != nil {
			return conn, errors.Join(fmt.Errorf("take over volume %s: %w", message.ID, err), closeAll(files))
		}
	}
}

// mostFiles are a socket, and the two of a gate.
const mostFiles = 3

func receive(conn *net.UnixConn) (message handed, files []*os.File, err error) {
	content, rights := make([]byte, largestMessage), make([]byte, unix.CmsgSpace(mostFiles*4))
	if err := conn.SetDeadline(time.Now().Add(handoverTimeout)); err != nil {
		return message, nil, err
	}
	n, rightsLen, _, _, err := conn.ReadMsgUnix(content, rights)
	if err != nil {
		return message, nil, err
	}
	if rightsLen > 0 {
		if files, err = filesIn(rights[:rightsLen]); err != nil {
			return message, nil, err
		}
	}
	if err := json.Unmarshal(content[:n], &message); err != nil {
		return message, nil, errors.Join(err, closeAll(files))
	}
	return message, files, nil
}

func filesIn(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, errors.Join(err, closeAll(files))
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			file, err := socketFile(fd, "handed over")
			if err != nil {
				return nil, errors.Join(err, closeAll(files))
			}
			files = append(files, file)
		}
	}
	if len(files) != 1 && len(files) != mostFiles {
		return nil, errors.Join(fmt.Errorf("%d descriptors came with it", len(files)), closeAll(files))
	}
	return files, nil
}

func closeAll(files []*os.File) error {
	errs := make([]error, 0, len(files))
	for _, file := range files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// adopt serves a volume that another supervisor served.
func (s *Supervisor) adopt(message handed, files []*os.File) error {
	s.change.Lock()
	defer s.change.Unlock()
	if err := errors.Join(message.Entry.Wanted.check(), checkID(message.ID)); err != nil {
		return err
	}
	if _, ok := s.worker(message.ID); ok {
		return errors.New("it is served already")
	}
	if err := s.save(message.ID, message.Entry); err != nil {
		return err
	}
	var g *gate
	if len(files) == mostFiles {
		g = &gate{group: files[1], memory: files[2]}
	}
	s.begin(message.ID, message.Entry, &socket{file: files[0], bound: message.Bound, name: message.Name}, g)
	return nil
}
