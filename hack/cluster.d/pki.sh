# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Certificates and kubeconfigs of one cluster. They are made anew by every start and go with it.

# create_pki NODE...
create_pki() {
    local node
    mkdir -p "$PKI"
    chmod 700 "$PKI"
    (
        cd "$PKI" || exit
        umask 077
        create_ca ca
        # Requests that the API server passes on to API extensions are signed by a CA that nobody else's certificates are from.
        create_ca front-proxy-ca
        openssl_quiet ecparam -name prime256v1 -genkey -noout -out service-account.key
        openssl_quiet ec -in service-account.key -pubout -out service-account.pub
        create_server_certificate kube-apiserver
        sign front-proxy-ca front-proxy-client /CN=front-proxy-client extendedKeyUsage=clientAuth
        create_client kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
        create_client admin /O=system:masters/CN=admin
        create_client kube-controller-manager /CN=system:kube-controller-manager
        create_client kube-scheduler /CN=system:kube-scheduler
        create_client kube-proxy /CN=system:kube-proxy
        for node in "$@"; do
            create_client "kubelet-$node" "/O=system:nodes/CN=system:node:$node"
        done
    )
}

# openssl tells its progress on standard error even when all is well; it is shown only when it fails.
openssl_quiet() {
    local output
    output=$(openssl "$@" 2>&1) || {
        printf '%s\n' "$output" >&2
        die "openssl $1 failed"
    }
}

# create_ca NAME
create_ca() {
    openssl_quiet req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 \
        -subj "/CN=splitfs-local-$1" -keyout "$1.key" -out "$1.crt"
}

# sign CA NAME SUBJECT EXTENSION...
sign() {
    local ca=$1 name=$2 subject=$3
    shift 3
    openssl_quiet req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "$subject" \
        -keyout "$name.key" -out "$name.csr"
    printf '%s\n' keyUsage=digitalSignature,keyEncipherment "$@" >"$name.ext"
    openssl_quiet x509 -req -in "$name.csr" -CA "$ca.crt" -CAkey "$ca.key" -CAcreateserial -days 365 \
        -extfile "$name.ext" -out "$name.crt"
    rm "$name.csr" "$name.ext"
}

create_server_certificate() {
    local names="DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    names+=",DNS:kubernetes.default.svc.cluster.local,DNS:localhost"
    names+=",IP:127.0.0.1,IP:$SERVICE_API,IP:$(api_address)"
    sign ca "$1" "/CN=$1" extendedKeyUsage=serverAuth "subjectAltName=$names"
}

# create_client NAME SUBJECT: a certificate, and a kubeconfig that holds it.
create_client() {
    sign ca "$1" "$2" extendedKeyUsage=clientAuth
    cat >"$1.kubeconfig" <<EOF
apiVersion: v1
kind: Config
current-context: $CLUSTER_NAME
clusters:
  - name: $CLUSTER_NAME
    cluster:
      server: https://$(api_address):6443
      certificate-authority-data: $(base64 -w0 ca.crt)
users:
  - name: $1
    user:
      client-certificate-data: $(base64 -w0 "$1.crt")
      client-key-data: $(base64 -w0 "$1.key")
contexts:
  - name: $CLUSTER_NAME
    context:
      cluster: $CLUSTER_NAME
      user: $1
EOF
}
