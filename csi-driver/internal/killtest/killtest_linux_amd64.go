// SPDX-License-Identifier: Apache-2.0

// Package killtest runs a program and kills it, with everything it has started, just before one of the system calls by
// which it changes the machine: a mount, a loop device, a file that is made, renamed, synced or removed, a program that
// is run. The calls are seen from outside, by a seccomp filter whose notifications the test answers, so the program
// needs no hooks and any call of any of its children counts. A test that goes through all numbers has killed the
// program at every step.
package killtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// runnerName is how a test binary is called to put a filter on itself and become another program.
const runnerName = "killtest-runner"

// Calls by which a program changes the machine. open and ioctl are looked at more closely.
var effects = []uint32{
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR,
	unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINK, unix.SYS_UNLINKAT, unix.SYS_RMDIR,
	unix.SYS_MKDIR, unix.SYS_MKDIRAT, unix.SYS_MKNOD, unix.SYS_MKNODAT, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
	unix.SYS_FALLOCATE, unix.SYS_FTRUNCATE, unix.SYS_COPY_FILE_RANGE, unix.SYS_EXECVE,
}

const (
	fiFreeze, fiThaw  = 0xc0045877, 0xc0045878
	xfsGrow           = 0x4010586e
	ext4Resize        = 0x40086610
	notifyReceive     = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	notifySend        = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
	setModeFilter     = 1
	newListener       = 1 << 3
	retUserNotif      = 0x7fc00000
	retAllow          = 0x7fff0000
	continueCall      = 1 // SECCOMP_USER_NOTIF_FLAG_CONTINUE
	offsetNumber      = 0
	offsetArgument1   = 16 + 8
	offsetArgument2   = 16 + 16
	listenerTimeout   = 60 * time.Second
	disappearsTimeout = 90 * time.Second
)

var ioctls = []uint32{
	unix.LOOP_CTL_GET_FREE, unix.LOOP_CONFIGURE, unix.LOOP_CLR_FD, unix.LOOP_SET_CAPACITY, unix.LOOP_SET_DIRECT_IO,
	unix.BLKROSET, unix.BLKDISCARD, unix.BLKZEROOUT, unix.FICLONE, fiFreeze, fiThaw, xfsGrow, ext4Resize,
}

// RunIfCalled turns this process into the program it was asked to run under a filter. Call it first in TestMain.
func RunIfCalled() {
	if filepath.Base(os.Args[0]) != runnerName {
		return
	}
	fmt.Fprintln(os.Stderr, runnerName+":", runFiltered(os.Args[1], os.Args[2:]))
	os.Exit(125)
}

// filter returns a BPF program that asks the listener about effects and lets everything else pass.
func filter() []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	skipUnless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
	}
	notify := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: retUserNotif}
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: retAllow}
	program := []unix.SockFilter{load(offsetNumber)}
	for _, number := range effects {
		program = append(program, skipUnless(number, 1), notify)
	}
	// openat(dir, path, flags): only one that makes a file.
	program = append(program, skipUnless(unix.SYS_OPENAT, 4), load(offsetArgument2),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.O_CREAT, Jf: 1}, notify, allow)
	program = append(program, skipUnless(unix.SYS_IOCTL, uint8(2*len(ioctls)+1)), load(offsetArgument1))
	for _, command := range ioctls {
		program = append(program, skipUnless(command, 1), notify)
	}
	return append(program, allow)
}

// runFiltered puts the filter on this thread, hands its listener to the test through descriptor 3, and executes the
// program.
func runFiltered(path string, args []string) error {
	runtime.LockOSThread()
	code := filter()
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, newListener, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("install the filter: %w", errno)
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(listener)), nil, 0); err != nil {
		return fmt.Errorf("hand over the listener: %w", err)
	}
	unix.CloseOnExec(3)
	unix.CloseOnExec(int(listener))
	return fmt.Errorf("execute %s: %w", path, syscall.Exec(path, args, os.Environ()))
}

// Process is a program that runs under the filter.
type Process struct {
	cmd      *exec.Cmd
	listener int
	killAt   int
	done     chan struct{}

	mu     sync.Mutex
	calls  int
	killed string
	err    error
}

// Start runs a program whose calls are counted; the one with the number killAt is not made any more, because the
// program is dead. 0 kills at none. path is executed as args[0].
func Start(dir string, killAt int, log *os.File, path string, args ...string) (*Process, error) {
	// The kernel gives orphans of the program to this process, which can then see that they are gone.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of orphans: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	runner := filepath.Join(dir, runnerName)
	if err := os.Symlink(self, runner); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer ours.Close()
	cmd := exec.Command(runner, append([]string{path}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = errors.Join(cmd.Start(), theirs.Close())
	if err != nil {
		return nil, err
	}
	listener, err := receiveListener(ours)
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	p := &Process{cmd: cmd, listener: listener, killAt: killAt, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.answer()
	}()
	return p, nil
}

func receiveListener(from *os.File) (int, error) {
	conn, err := net.FileConn(from)
	if err != nil {
		return -1, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(listenerTimeout)); err != nil {
		return -1, err
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return -1, errors.New("not a Unix socket")
	}
	buffer := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unixConn.ReadMsgUnix(make([]byte, 1), buffer)
	if err != nil {
		return -1, fmt.Errorf("receive the listener: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(buffer[:n])
	if err != nil || len(messages) != 1 {
		return -1, fmt.Errorf("receive the listener: %d messages, %w", len(messages), err)
	}
	descriptors, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(descriptors) != 1 {
		return -1, fmt.Errorf("receive the listener: %d descriptors, %w", len(descriptors), err)
	}
	return descriptors[0], nil
}

type notification struct {
	id          uint64
	pid, flags  uint32
	number      int32
	arch        uint32
	instruction uint64
	arguments   [6]uint64
}

type answer struct {
	id    uint64
	value int64
	err   int32
	flags uint32
}

// answer lets every call go on but the one to kill at, and ends when nobody is left to make one.
func (p *Process) answer() {
	defer unix.Close(p.listener)
	for {
		poll := []unix.PollFd{{Fd: int32(p.listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			p.fail(fmt.Errorf("wait for a call: %w", err))
			return
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			return // the last process under the filter is gone
		}
		var n notification
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(p.listener), notifyReceive,
			uintptr(unsafe.Pointer(&n))); errno != 0 {
			if errno == unix.ENOENT || errno == unix.EINTR {
				continue // the caller died meanwhile
			}
			p.fail(fmt.Errorf("receive a call: %w", errno))
			return
		}
		if p.count(n) {
			continue // it will never be answered: its caller is dead
		}
		a := answer{id: n.id, flags: continueCall}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(p.listener), notifySend,
			uintptr(unsafe.Pointer(&a))); errno != 0 && errno != unix.ENOENT {
			p.fail(fmt.Errorf("answer a call: %w", errno))
			return
		}
	}
}

// count counts a call, and kills the process group when it is the one to kill at.
func (p *Process) count(n notification) (killed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if p.calls != p.killAt {
		return p.killed != ""
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", n.pid))
	if err != nil {
		name = []byte(strconv.Itoa(int(n.pid)) + "\n")
	}
	p.killed = fmt.Sprintf("call %d of %s: system call %d(%#x, %#x)", p.calls, name[:len(name)-1], n.number,
		n.arguments[0], n.arguments[1])
	if err := unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL); err != nil {
		p.err = fmt.Errorf("kill: %w", err)
	}
	return true
}

func (p *Process) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.Join(p.err, err)
}

// Killed says at which call the program was killed, "" when it was not.
func (p *Process) Killed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// Calls returns how many calls were counted so far.
func (p *Process) Calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// Stop asks the program to end, unless it was killed, and waits until it and everything it had started are gone.
func (p *Process) Stop(ctx context.Context) error {
	if p.Killed() == "" {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	err := p.cmd.Wait()
	if p.Killed() != "" {
		err = nil // how it ended is known
	}
	ctx, cancel := context.WithTimeout(ctx, disappearsTimeout)
	defer cancel()
	for {
		_, waitErr := unix.Wait4(-p.cmd.Process.Pid, nil, unix.WNOHANG, nil)
		if errors.Is(waitErr, unix.ECHILD) {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes of the program are left after %s", disappearsTimeout)
		case <-time.After(2 * time.Millisecond):
		}
	}
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(err, p.err)
}
