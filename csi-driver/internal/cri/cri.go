// SPDX-License-Identifier: Apache-2.0

// Package cri asks the container runtime of the node what the image of a container says. Nothing is changed by it.
package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DefaultSockets are where runtimes listen; the first that is there is asked.
var DefaultSockets = []string{
	"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock",
	"/run/cri-dockerd.sock",
}

// timeout bounds each question.
const timeout = 5 * time.Second

// Client asks the runtime. It connects with the first question and stays connected.
type Client struct {
	root    string
	sockets []string

	mu   sync.Mutex
	conn *grpc.ClientConn
}

// New returns a client of the runtime that listens on one of the sockets, below root: the root directory of the node.
func New(root string, sockets []string) *Client { return &Client{root: root, sockets: sockets} }

// Close ends the connection.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

func (c *Client) connect() (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		return c.conn, nil
	}
	for _, socket := range c.sockets {
		path := filepath.Join(c.root, socket)
		if info, err := os.Stat(path); err != nil || info.Mode().Type() != os.ModeSocket {
			continue
		}
		conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, fmt.Errorf("connect to the container runtime at %s: %w", socket, err)
		}
		c.conn = conn
		return conn, nil
	}
	return nil, fmt.Errorf("connect to the container runtime: there is no socket at %s", strings.Join(c.sockets, ", "))
}

// ImageEnv returns the variables, as NAME=VALUE, that the image of a container sets.
func (c *Client) ImageEnv(ctx context.Context, containerID string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := c.connect()
	if err != nil {
		return nil, err
	}
	container, err := runtimeapi.NewRuntimeServiceClient(conn).ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{
		ContainerId: containerID,
	})
	if err != nil {
		return nil, fmt.Errorf("ask the container runtime for container %s: %w", containerID, err)
	}
	image := container.GetStatus().GetImageId()
	if image == "" { // runtimes before it was added
		image = container.GetStatus().GetImageRef()
	}
	answer, err := runtimeapi.NewImageServiceClient(conn).ImageStatus(ctx, &runtimeapi.ImageStatusRequest{
		Image: &runtimeapi.ImageSpec{Image: image}, Verbose: true,
	})
	if err != nil {
		return nil, fmt.Errorf("ask the container runtime for image %s: %w", image, err)
	}
	if answer.GetImage() == nil {
		return nil, fmt.Errorf("ask the container runtime for image %s: it does not have it", image)
	}
	// What is in here is the runtime's business by the letter of CRI; containerd and CRI-O agree on this much.
	var info struct {
		ImageSpec *struct {
			Config struct {
				Env []string `json:"Env"`
			} `json:"config"`
		} `json:"imageSpec"`
	}
	if err := json.Unmarshal([]byte(answer.GetInfo()["info"]), &info); err != nil || info.ImageSpec == nil {
		return nil, fmt.Errorf("ask the container runtime for image %s: its answer does not show the image's configuration",
			image)
	}
	return info.ImageSpec.Config.Env, nil
}
