// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"splitfs.io/splitfs/charts/charttest"
	"splitfs.io/splitfs/csi-driver/internal/registration"
	"splitfs.io/splitfs/internal/contract"
)

func (s *service) get(path string) (code int, body string) {
	s.t.Helper()
	resp, err := http.Get("http://" + s.options.httpEndpoint + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(content)
}

// kubeletRegisters does what kubelet does when it finds the registration socket.
func (s *service) kubeletRegisters(registered bool, message string) *registerapi.PluginInfo {
	s.t.Helper()
	conn, err := grpc.NewClient("unix://"+registration.SocketPath(s.options.kubeletDir),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	client := registerapi.NewRegistrationClient(conn)
	info, err := client.GetInfo(context.Background(), &registerapi.InfoRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	_, err = client.NotifyRegistrationStatus(context.Background(), &registerapi.RegistrationStatus{
		PluginRegistered: registered, Error: message,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return info
}

func TestRegistrationAndHealth(t *testing.T) {
	s := startNode(t, "", "")
	eventually(t, "the service is live", func() error {
		if code, body := s.get("/healthz"); code != http.StatusOK {
			return fmt.Errorf("/healthz: %d %s", code, body)
		}
		return nil
	})
	eventually(t, "the service has started, and waits for kubelet", func() error {
		if code, body := s.get("/readyz"); code != http.StatusServiceUnavailable ||
			!strings.Contains(body, "kubelet has not registered") {
			return fmt.Errorf("/readyz: %d %s", code, body)
		}
		return nil
	})
	info := s.kubeletRegisters(true, "")
	if info.GetType() != registerapi.CSIPlugin || info.GetName() != contract.Driver ||
		"unix://"+info.GetEndpoint() != s.options.endpoint {
		t.Errorf("registered as %v", info)
	}
	eventually(t, "the service is ready once it is registered", func() error {
		if code, body := s.get("/readyz"); code != http.StatusOK {
			return fmt.Errorf("/readyz: %d %s", code, body)
		}
		return nil
	})
	// Health is real: without the splitfs program no volume can be served. A restart would not bring it back.
	if err := os.Remove(s.options.binary); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the service is not ready without the splitfs program", func() error {
		if code, body := s.get("/readyz"); code != http.StatusServiceUnavailable ||
			!strings.Contains(body, "splitfs program") {
			return fmt.Errorf("/readyz: %d %s", code, body)
		}
		return nil
	})
	if code, body := s.get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz without the splitfs program: %d %s", code, body)
	}
}

func TestKubeletRefuses(t *testing.T) {
	s := startNode(t, "", "")
	stopped := make(chan error, 1)
	s.stop() // run it here, to see how it ends
	go func() { stopped <- runNode(context.Background(), s.options) }()
	eventually(t, "the registration socket is there", func() error {
		_, err := os.Stat(registration.SocketPath(s.options.kubeletDir))
		return err
	})
	s.kubeletRegisters(false, "no such version")
	if err := <-stopped; err == nil || !strings.Contains(err.Error(), "kubelet refused the driver: no such version") {
		t.Errorf("the service ended with %v", err)
	}
}

// volumeOnNode is a volume that was created, staged and published through gRPC.
type volumeOnNode struct {
	id, staging, target string
	fsType              string // empty: xfs
	context             map[string]string
}

func mountCapability(fsType string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func (s *service) create(name, mode string) volumeOnNode {
	s.t.Helper()
	return s.createOfClass(name, map[string]string{"mode": mode})
}

func (s *service) createOfClass(name string, class map[string]string) volumeOnNode {
	s.t.Helper()
	return s.createFrom(name, "xfs", class, nil)
}

// createFrom makes a volume, as a copy unless source is nil.
func (s *service) createFrom(name, fsType string, class map[string]string,
	source *csi.VolumeContentSource) volumeOnNode {
	s.t.Helper()
	parameters := map[string]string{"csi.storage.k8s.io/pvc/name": name, "csi.storage.k8s.io/pvc/namespace": "default"}
	maps.Copy(parameters, class)
	request := &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 64 << 20},
		VolumeCapabilities: []*csi.VolumeCapability{mountCapability(fsType)}, Parameters: parameters,
		VolumeContentSource: source,
	}
	resp, err := csi.NewControllerClient(s.conn).CreateVolume(context.Background(), request)
	for source != nil && status.Code(err) == codes.Aborted { // on a slow machine the call ends before the work does
		resp, err = csi.NewControllerClient(s.conn).CreateVolume(context.Background(), request)
	}
	s.must(err)
	return volumeOnNode{
		id: resp.GetVolume().GetVolumeId(), context: resp.GetVolume().GetVolumeContext(), fsType: fsType,
		staging: filepath.Join(s.dir, "staging-"+name), target: filepath.Join(s.dir, "target-"+name),
	}
}

func (s *service) stage(v volumeOnNode) error {
	_, err := csi.NewNodeClient(s.conn).NodeStageVolume(context.Background(), &csi.NodeStageVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging, VolumeCapability: mountCapability(cmp.Or(v.fsType, "xfs")),
		VolumeContext: v.context,
	})
	return err
}

func (s *service) publish(v volumeOnNode) error {
	forPod := maps.Clone(v.context)
	if forPod == nil {
		forPod = map[string]string{}
	}
	forPod["csi.storage.k8s.io/pod.uid"] = "1"
	_, err := csi.NewNodeClient(s.conn).NodePublishVolume(context.Background(), &csi.NodePublishVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging, TargetPath: v.target,
		VolumeCapability: mountCapability(cmp.Or(v.fsType, "xfs")), VolumeContext: forPod,
	})
	return err
}

func (s *service) unpublish(id, target string) error {
	_, err := csi.NewNodeClient(s.conn).NodeUnpublishVolume(context.Background(), &csi.NodeUnpublishVolumeRequest{
		VolumeId: id, TargetPath: target,
	})
	return err
}

func (s *service) unstage(v volumeOnNode) error {
	_, err := csi.NewNodeClient(s.conn).NodeUnstageVolume(context.Background(), &csi.NodeUnstageVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging,
	})
	return err
}

func (s *service) delete(v volumeOnNode) error {
	_, err := csi.NewControllerClient(s.conn).DeleteVolume(context.Background(), &csi.DeleteVolumeRequest{VolumeId: v.id})
	return err
}

func (s *service) must(errs ...error) {
	s.t.Helper()
	must(s.t, errs...)
}

func TestMetrics(t *testing.T) {
	s := startNode(t, "", "")
	v := s.create("claim", "strict")
	s.must(s.stage(v), s.publish(v))
	eventually(t, "the metrics show the volume", func() error {
		code, body := s.get("/metrics")
		for _, want := range []string{
			`splitfs_append_ops_total{namespace="default",persistentvolumeclaim="claim",volume_id="` + v.id + `"} 5`,
			`splitfs_fsync_ops_total{namespace="default",persistentvolumeclaim="claim",volume_id="` + v.id + `"} 7`,
			`splitfs_agent_up{namespace="default",persistentvolumeclaim="claim",volume_id="` + v.id + `"} 1`,
			`emulated="true"`, `mode="strict"`, `provider="reflink"`, "splitfs_node_library_installed 1",
			"splitfs_node_available_bytes", `method_name="/csi.v1.Node/NodeStageVolume"`,
		} {
			if code != http.StatusOK || !strings.Contains(body, want) {
				return fmt.Errorf("%d, no %s in:\n%s", code, want, body)
			}
		}
		return nil
	})
	_, body := s.get("/metrics")
	checkKnown(t, body)
	s.must(s.unpublish(v.id, v.target), s.unstage(v), s.delete(v))
}

// checkKnown: every metric of ours that a running service prints is among the samples that dashboards and alerts are
// tried on.
func checkKnown(t *testing.T, body string) {
	t.Helper()
	var samples strings.Builder
	for _, exporter := range []string{"node", "csi", "pods", "status"} {
		text, err := os.ReadFile(filepath.Join(charttest.SamplesDir(t), exporter+".prom"))
		if err != nil {
			t.Fatal(err)
		}
		samples.Write(text)
	}
	printed := regexp.MustCompile(`(?m)^# TYPE (splitfs|csi)_.*$`).FindAllString(body, -1)
	if len(printed) < 20 {
		t.Errorf("only %d metrics", len(printed))
	}
	for _, metric := range printed {
		if !strings.Contains(samples.String(), metric+"\n") {
			t.Errorf("no sample of %s", metric)
		}
	}
}

// TestInlineVolumes: the one kind that is offered works, and every other request says what to do instead.
func TestInlineVolumes(t *testing.T) {
	s := startNode(t, "", "")
	target := filepath.Join(s.dir, "inline")
	publish := func(readOnly bool, attributes map[string]string) error {
		volumeContext := map[string]string{
			"csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/pod.name": "p", "csi.storage.k8s.io/pod.uid": "1",
		}
		for k, v := range attributes {
			volumeContext[k] = v
		}
		_, err := csi.NewNodeClient(s.conn).NodePublishVolume(context.Background(), &csi.NodePublishVolumeRequest{
			VolumeId: "csi-5b1f", TargetPath: target, Readonly: readOnly, VolumeCapability: mountCapability(""),
			VolumeContext: volumeContext,
		})
		return err
	}
	for _, c := range []struct {
		name       string
		readOnly   bool
		attributes map[string]string
		message    string
	}{
		{"no kind", true, nil, "use a PersistentVolumeClaim"},
		{"other kind", true, map[string]string{"splitfs.io/kind": "scratch"}, `is "scratch"; allowed: library`},
		{"unknown attribute", true, map[string]string{"splitfs.io/kind": "library", "mode": "strict"},
			`unknown inline volume attribute "mode"`},
		{"writable", false, map[string]string{"splitfs.io/kind": "library"}, "set csi.readOnly: true"},
	} {
		err := publish(c.readOnly, c.attributes)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	s.must(publish(true, map[string]string{"splitfs.io/kind": "library"}))
	if err := os.WriteFile(filepath.Join(target, "x"), nil, 0o644); !errors.Is(err, syscall.EROFS) {
		t.Errorf("writing into it: %v", err)
	}
	s.must(s.unpublish("csi-5b1f", target))
}
