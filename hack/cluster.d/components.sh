# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The daemons: containerd, kubelet and kube-proxy on every node, the control plane on the first one.

CONTAINERD_SOCKET=/run/containerd/containerd.sock

# components_of NODE: what has to run there, in the order of starting.
components_of() {
    printf 'containerd\n'
    if [ "$1" = "$CONTROL_PLANE_NODE" ]; then
        printf '%s\n' etcd kube-apiserver kube-controller-manager kube-scheduler
    fi
    printf '%s\n' kubelet kube-proxy
}

start_containerd() {
    local node=$1 dir
    ! component_running "$node" containerd || return 0
    dir=$(node_dir "$node")
    mkdir -p "$dir/cni"
    cat >"$dir/containerd.toml" <<EOF
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs", "io.containerd.nri.v1.nri",
]

[grpc]
  address = "$CONTAINERD_SOCKET"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "$PAUSE_IMAGE"

[plugins."io.containerd.cri.v1.runtime"]
  # Without CAP_SYS_RESOURCE, as inside many virtual machines and containers, lowering the score is refused.
  restrict_oom_score_adj = true
  disable_apparmor = true

[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  SystemdCgroup = false
  # Debian 12's runc makes no user namespaces for pods.
  BinaryName = "$(tool runc runc)"

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["$CNI_BIN"]
  conf_dir = "$dir/cni"
EOF
    # Pods are routed (ptp), not bridged: between bridged pods of one node Services would need the module br_netfilter, which
    # changes every bridge of the machine.
    cat >"$dir/cni/10-pods.conflist" <<EOF
{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {
      "type": "ptp",
      "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": "$(pod_cidr "$node")"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
EOF
    start_component "$node" containerd "$(tool containerd containerd)" --config "$dir/containerd.toml"
}

containerd_answers() {
    in_node "$1" "$(tool containerd ctr)" -a "$CONTAINERD_SOCKET" version
}

start_etcd() {
    local node=$1 dir
    dir=$(node_dir "$node")
    mkdir -p "$dir/etcd"
    chmod 700 "$dir/etcd"
    # The cluster does not outlive a crash of the machine, so nothing is gained by waiting for its disk.
    start_component "$node" etcd "$(tool etcd etcd)" --name "$node" --data-dir "$dir/etcd" --unsafe-no-fsync \
        --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
        --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
        --initial-cluster "$node=http://127.0.0.1:2380" --log-level warn
}

start_apiserver() {
    start_component "$1" kube-apiserver "$(tool kubernetes kube-apiserver)" \
        --etcd-servers=http://127.0.0.1:2379 \
        --advertise-address="$(api_address)" --secure-port=6443 \
        --service-cluster-ip-range="$SERVICE_CIDR" \
        --allow-privileged=true \
        --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
        --client-ca-file="$PKI/ca.crt" \
        --tls-cert-file="$PKI/kube-apiserver.crt" --tls-private-key-file="$PKI/kube-apiserver.key" \
        --kubelet-client-certificate="$PKI/kubelet-client.crt" --kubelet-client-key="$PKI/kubelet-client.key" \
        --kubelet-preferred-address-types=InternalIP \
        --requestheader-client-ca-file="$PKI/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy-client \
        --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
        --requestheader-extra-headers-prefix=X-Remote-Extra- \
        --proxy-client-cert-file="$PKI/front-proxy-client.crt" --proxy-client-key-file="$PKI/front-proxy-client.key" \
        --service-account-issuer=https://kubernetes.default.svc.cluster.local \
        --service-account-key-file="$PKI/service-account.pub" \
        --service-account-signing-key-file="$PKI/service-account.key"
}

api_ready() {
    kubectl_admin get --raw /readyz
}

start_controllers() {
    start_component "$1" kube-controller-manager "$(tool kubernetes kube-controller-manager)" \
        --kubeconfig="$PKI/kube-controller-manager.kubeconfig" \
        --authentication-kubeconfig="$PKI/kube-controller-manager.kubeconfig" \
        --authorization-kubeconfig="$PKI/kube-controller-manager.kubeconfig" \
        --bind-address=127.0.0.1 --leader-elect=false --use-service-account-credentials \
        --service-account-private-key-file="$PKI/service-account.key" --root-ca-file="$PKI/ca.crt" \
        --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
        --service-cluster-ip-range="$SERVICE_CIDR"
    start_component "$1" kube-scheduler "$(tool kubernetes kube-scheduler)" \
        --kubeconfig="$PKI/kube-scheduler.kubeconfig" \
        --authentication-kubeconfig="$PKI/kube-scheduler.kubeconfig" \
        --authorization-kubeconfig="$PKI/kube-scheduler.kubeconfig" \
        --bind-address=127.0.0.1 --leader-elect=false
}

start_kubelet() {
    local node=$1 dir
    ! component_running "$node" kubelet || return 0
    dir=$(node_dir "$node")
    # Images cannot be pulled again here, so none may be collected, however full the disk is.
    cat >"$dir/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous:
    enabled: false
  webhook:
    enabled: true
  x509:
    clientCAFile: $PKI/ca.crt
authorization:
  mode: Webhook
containerRuntimeEndpoint: unix://$CONTAINERD_SOCKET
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
clusterDNS: [$SERVICE_DNS]
clusterDomain: cluster.local
resolvConf: $dir/resolv.conf
evictionHard:
  memory.available: 100Mi
  nodefs.available: 0%
  nodefs.inodesFree: 0%
  imagefs.available: 0%
imageGCHighThresholdPercent: 100
oomScoreAdj: 0
serializeImagePulls: false
# Tests kill containers all the time: what is killed comes back soon, also the tenth time.
crashLoopBackOff:
  maxContainerRestartPeriod: 10s
EOF
    start_component "$node" kubelet "$(tool kubernetes kubelet)" --config="$dir/kubelet.yaml" \
        --kubeconfig="$PKI/kubelet-$node.kubeconfig" --cert-dir="$dir/kubelet-pki" \
        --hostname-override="$node" --node-ip="$(node_address "$node")" --v=2
}

start_kube_proxy() {
    local node=$1 dir
    # It ends when its configuration file is written, even with the same content.
    ! component_running "$node" kube-proxy || return 0
    dir=$(node_dir "$node")
    # The connection tracking limits belong to the whole machine: left alone.
    cat >"$dir/kube-proxy.yaml" <<EOF
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clientConnection:
  kubeconfig: $PKI/kube-proxy.kubeconfig
hostnameOverride: $node
clusterCIDR: $POD_NET_PREFIX.0.0/16
nodePortAddresses: [primary]
conntrack:
  maxPerCore: 0
  min: 0
  tcpEstablishedTimeout: 0s
  tcpCloseWaitTimeout: 0s
iptables:
  localhostNodePorts: false
oomScoreAdj: 0
EOF
    start_component "$node" kube-proxy "$(tool kubernetes kube-proxy)" --config="$dir/kube-proxy.yaml" --v=1
}

# There is no DNS server in the cluster. A Service without endpoints at the address that pods ask makes kube-proxy refuse
# their queries, so that a lookup fails at once and not after ten seconds.
refuse_dns() {
    kubectl_admin apply -f - >/dev/null <<EOF
apiVersion: v1
kind: Service
metadata:
  name: kube-dns
  namespace: kube-system
  annotations:
    splitfs.io/description: no DNS server runs in the local cluster; this Service has queries refused
spec:
  clusterIP: $SERVICE_DNS
  ports:
    - {name: dns, port: 53, protocol: UDP}
    - {name: dns-tcp, port: 53, protocol: TCP}
EOF
}
