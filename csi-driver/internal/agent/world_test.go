// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// As an agent, this test binary does what the name of its volume's root says.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "agent-double" {
		os.Exit(m.Run())
	}
	action := filepath.Base(os.Args[2])
	if filepath.Base(filepath.Dir(os.Args[0])) == "broken" {
		action = "fail"
	}
	double(action)
	os.Exit(0)
}

func double(action string) {
	switch action {
	case "serve":
		terminate := make(chan os.Signal, 1)
		signal.Notify(terminate, syscall.SIGTERM)
		fmt.Println("ready")
		var busy sync.Mutex
		go answer(&busy)
		<-terminate
		busy.Lock() // whom it has accepted gets its answer
	case "gate":
		say(generation())
		fmt.Println("ready")
		select {}
	case "mute-gate":
		say(generation())
		select {}
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		select {}
	case "mute":
		select {}
	case "fail":
		fmt.Fprintln(os.Stderr, "splitfs: the volume is on fire; call somebody")
		os.Exit(1)
	case "die":
		fmt.Println("ready")
	}
}

// generation counts in the gate's memory how many agents have had it; "none" without one.
func generation() string {
	group, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", gateFD))
	if err != nil || group != "anon_inode:[fanotify]" {
		return "none"
	}
	n := []byte{0}
	_, _ = unix.Pread(gateFD+1, n, 0) // it may be empty
	n[0]++
	_, _ = unix.Pwrite(gateFD+1, n, 0)
	return fmt.Sprint("generation ", n[0])
}

// say writes a line to the volume.
func say(line string) {
	file, err := os.OpenFile(filepath.Join(os.Args[2], "said"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(file, line)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "say:", err)
	}
}

// answer tells everybody who connects its process ID. It holds busy while somebody waits for that.
func answer(busy *sync.Mutex) {
	for {
		// The next agent has the socket too, and may be the one to accept: nobody waits for that with busy held.
		_, err := unix.Poll([]unix.PollFd{{Fd: listenFD, Events: unix.POLLIN}}, -1)
		if err == nil {
			err = answerOne(busy)
		}
		if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			fmt.Fprintln(os.Stderr, "accept:", err)
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func answerOne(busy *sync.Mutex) error {
	busy.Lock()
	defer busy.Unlock()
	fd, _, err := unix.Accept(listenFD)
	if err != nil {
		return err
	}
	_, _ = unix.Write(fd, fmt.Append(nil, os.Getpid()))
	return unix.Close(fd)
}

// world is a place for a supervisor, its volumes and the program of their agents.
type world struct {
	t       *testing.T
	ctx     context.Context
	dir     string
	program string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "sfs") // short, for the sake of socket addresses
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	logger, _ := ktesting.NewTestContext(t)
	ctx, cancel := context.WithTimeout(klog.NewContext(context.Background(), logger), 30*time.Second)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, dir: dir}
	w.mkdir("shown")
	w.program = w.install("")
	return w
}

func (w *world) mkdir(name string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// install makes the test binary an agent's program in a directory of that name.
func (w *world) install(name string) string {
	w.t.Helper()
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	path := filepath.Join(w.mkdir(name), "agent-double")
	if err := os.Symlink(self, path); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// volume is one whose agent does what action says.
func (w *world) volume(action string) Volume {
	w.t.Helper()
	return Volume{Root: w.mkdir(action), AgentsDir: filepath.Join(w.dir, "shown"), Program: w.program}
}

func (w *world) supervisor(change func(*Config)) *Supervisor {
	w.t.Helper()
	config := Config{
		Dir: filepath.Join(w.dir, "sockets"), ReadyTimeout: 5 * time.Second, StopTimeout: 2 * time.Second,
		MinBackoff: 10 * time.Millisecond, MaxBackoff: 50 * time.Millisecond,
	}
	if change != nil {
		change(&config)
	}
	s, err := New(w.ctx, config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.Shutdown)
	return s
}

// socket is the name that programs connect to.
func (w *world) socket() string {
	var st unix.Stat_t
	if err := unix.Stat(w.dir, &st); err != nil {
		w.t.Fatal(err)
	}
	return filepath.Join(w.dir, "shown", fmt.Sprintf("%d-%d.sock", unix.Major(st.Dev), unix.Minor(st.Dev)))
}

// ask connects as a program does and returns what the agent says.
func (w *world) ask() (string, error) {
	conn, err := net.Dial("unixpacket", w.socket())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	answer := make([]byte, 32)
	n, err := conn.Read(answer)
	if errors.Is(err, io.EOF) {
		// The answer and the end came while the kernel looked: it saw the end, and the answer is there.
		n, err = conn.Read(answer)
	}
	if err == nil && n == 0 {
		err = errors.New("the connection was closed")
	}
	return string(answer[:n]), err
}

func (w *world) eventually(what string, condition func() bool) {
	w.t.Helper()
	for !condition() {
		if w.ctx.Err() != nil {
			w.t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func gone(pid int) bool { return syscall.Kill(pid, 0) != nil }

// stopAndLeave asks for the end of a volume's agent, and does not wait for it.
func (w *world) stopAndLeave(s *Supervisor, id string) {
	w.t.Helper()
	left, cancel := context.WithCancel(w.ctx)
	cancel()
	if err := s.Stop(left, id); !errors.Is(err, context.Canceled) {
		w.t.Fatalf("a caller that has gone: %v", err)
	}
}
