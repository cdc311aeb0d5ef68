// SPDX-License-Identifier: Apache-2.0

// Package driver serves CSI. Each call is a shell: check the request, take the volume's lock, let package node do the
// work, and turn its error into a gRPC status.
package driver

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Order matters: the first match decides, and an error can wrap several (a cleanup that failed after something else
// did).
var codeOf = []struct {
	err  error
	code codes.Code
}{
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
	{volume.ErrInvalid, codes.InvalidArgument},
	{volume.ErrNotFound, codes.NotFound},
	{volume.ErrExists, codes.AlreadyExists},
	{volume.ErrBusy, codes.Aborted},
	{volume.ErrUnavailable, codes.Unavailable},
	{volume.ErrOutOfRange, codes.OutOfRange},
	{volume.ErrExhausted, codes.ResourceExhausted},
	{volume.ErrPrecondition, codes.FailedPrecondition},
}

// StatusOf turns an error into what goes over the wire.
func StatusOf(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, c := range codeOf {
		if errors.Is(err, c.err) {
			return status.Error(c.code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}

func missing(what string) error {
	return fmt.Errorf("%w: the request has no %s", volume.ErrInvalid, what)
}
