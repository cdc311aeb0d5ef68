// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// cert-controller watches all Secrets of a namespace for the sake of one, and the namespace has others, such as the key
// that signs kernel modules. Its requests are narrowed to the one, so that the injector needs no right to the others.

// scopedManager is a manager whose users see one Secret only.
type scopedManager struct {
	manager.Manager
	config *rest.Config
}

func (m scopedManager) GetConfig() *rest.Config { return m.config }

func scope(m manager.Manager, secret types.NamespacedName) manager.Manager {
	config := rest.CopyConfig(m.GetConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return oneSecret{secret, next} })
	return scopedManager{m, config}
}

// oneSecret adds a Secret's name to requests that list or watch those of its namespace.
type oneSecret struct {
	secret types.NamespacedName
	next   http.RoundTripper
}

func (o oneSecret) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/api/v1/namespaces/"+o.secret.Namespace+"/secrets") {
		r = r.Clone(r.Context())
		query := r.URL.Query()
		query.Set("fieldSelector", fields.OneTermEqualSelector("metadata.name", o.secret.Name).String())
		r.URL.RawQuery = query.Encode()
	}
	return o.next.RoundTrip(r)
}
