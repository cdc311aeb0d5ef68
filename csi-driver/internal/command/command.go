// SPDX-License-Identifier: Apache-2.0

// Package command runs other programs: bound to a context, in the C locale, with their complaint kept in a typed error.
package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// Error says that a program ran and failed, or could not be run at all (ExitCode -1).
type Error struct {
	Program  string
	Args     []string
	ExitCode int
	Stderr   string
	Err      error
}

func (e *Error) Error() string {
	what := e.Stderr
	if what == "" {
		what = e.Err.Error()
	}
	return fmt.Sprintf("%s %s: %s", e.Program, strings.Join(e.Args, " "), what)
}

func (e *Error) Unwrap() error { return e.Err }

// ExitCode returns the exit code behind err, or -1 when err is not the failure of a program.
func ExitCode(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.ExitCode
	}
	return -1
}

// killDelay is how long a program may take to end after its context is done and it was sent SIGTERM.
const killDelay = 5 * time.Second

// Run runs a program to its end and returns its standard output.
func Run(ctx context.Context, program string, args ...string) ([]byte, error) {
	logger := klog.FromContext(ctx)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killDelay
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	logger.V(4).Info("Ran a program", "program", program, "args", args, "duration", time.Since(start), "err", err)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", err, ctx.Err())
		}
		return stdout.Bytes(), &Error{
			Program: program, Args: args, ExitCode: cmd.ProcessState.ExitCode(),
			Stderr: lastLines(stderr.String(), 5), Err: err,
		}
	}
	return stdout.Bytes(), nil
}

// RunJSON runs a program that prints exactly one JSON object and decodes it into out.
func RunJSON(ctx context.Context, out any, program string, args ...string) error {
	stdout, err := Run(ctx, program, args...)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(stdout))
	if err := decoder.Decode(out); err != nil {
		return fmt.Errorf("%s %s: decode its output: %w", program, strings.Join(args, " "), err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s %s: more than one JSON object in its output", program, strings.Join(args, " "))
	}
	return nil
}

// lastLines keeps the end of a program's complaint, where the reason usually is, on one line.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}
