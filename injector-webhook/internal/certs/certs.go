// SPDX-License-Identifier: Apache-2.0

// Package certs gives the webhook its certificate. cert-controller issues and renews a CA and a server certificate in a
// Secret and writes the CA into the webhook's configuration; this package serves what is in the Secret.
//
// The Secret is read from the API server and the key is kept in memory. A Secret volume would follow only within
// kubelet's sync period, a minute and more, in which a new installation would not become ready and a renewed
// certificate would not be used.
package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	certKey    = "tls.crt"
	privateKey = "tls.key"
	// refreshInterval is how soon a certificate that another replica issued is used.
	refreshInterval = 2 * time.Second
)

// Options say where the certificate lives and whom it names.
type Options struct {
	Secret types.NamespacedName
	// Issue certificates and renew them. Otherwise somebody else (cert-manager) fills Secret and caBundle.
	Issue bool
	// WebhookName is the MutatingWebhookConfiguration whose caBundle is kept up to date.
	WebhookName string
	// DNSName is what the API server calls: SERVICE.NAMESPACE.svc. ExtraDNSNames are further names.
	DNSName       string
	ExtraDNSNames []string
}

// Source hands out the current certificate.
type Source struct {
	options Options
	reader  client.Reader
	// markerDir holds a copy of the public certificate: cert-controller takes its presence for "the server can serve".
	markerDir string
	ready     chan struct{}
	current   atomic.Pointer[held]
}

type held struct {
	certificate tls.Certificate
	version     string
}

// Add puts rotation and serving of the certificate into a manager.
func Add(mgr manager.Manager, o Options) (*Source, error) {
	dir, err := os.MkdirTemp("", "splitfs-injector-")
	if err != nil {
		return nil, fmt.Errorf("create directory for the certificate: %w", err)
	}
	s := &Source{options: o, reader: mgr.GetAPIReader(), markerDir: dir, ready: make(chan struct{})}
	if o.Issue {
		if err := s.addRotation(mgr); err != nil {
			return nil, err
		}
	} else {
		close(s.ready) // whether the caBundle is right is not ours to know
	}
	if err := mgr.Add(s); err != nil {
		return nil, fmt.Errorf("add certificate source: %w", err)
	}
	return s, nil
}

func (s *Source) addRotation(mgr manager.Manager) error {
	o := s.options
	if err := rotator.AddRotator(scope(mgr, o.Secret), &rotator.CertRotator{
		SecretKey:              o.Secret,
		CertDir:                s.markerDir,
		CAName:                 "splitfs-injector-ca",
		CAOrganization:         "splitfs.io",
		DNSName:                o.DNSName,
		ExtraDNSNames:          o.ExtraDNSNames,
		IsReady:                s.ready,
		Webhooks:               []rotator.WebhookInfo{{Name: o.WebhookName, Type: rotator.Mutating}},
		FieldOwner:             "splitfs-injector",
		RestartOnSecretRefresh: false,
		// Each replica may issue: the Secret's resourceVersion decides between two.
		RequireLeaderElection: false,
	}); err != nil {
		return fmt.Errorf("add certificate rotation: %w", err)
	}
	return nil
}

// NeedLeaderElection is false: every replica serves.
func (s *Source) NeedLeaderElection() bool { return false }

// Start follows the Secret until the context ends.
func (s *Source) Start(ctx context.Context) error {
	// A left-over public certificate in a temporary directory harms nobody.
	defer os.RemoveAll(s.markerDir) //nolint:errcheck // see above
	ticker := time.NewTicker(refreshInterval)
	defer ticker.Stop()
	for {
		if err := s.refresh(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Certificate cannot be refreshed, will try again",
				"secret", klog.KRef(s.options.Secret.Namespace, s.options.Secret.Name))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (s *Source) refresh(ctx context.Context) error {
	secret := &corev1.Secret{}
	if err := s.reader.Get(ctx, s.options.Secret, secret); err != nil {
		return fmt.Errorf("read secret: %w", err)
	}
	if old := s.current.Load(); old != nil && old.version == secret.ResourceVersion {
		return nil
	}
	if len(secret.Data[certKey]) == 0 || len(secret.Data[privateKey]) == 0 {
		// Just installed, no certificate has been issued yet.
		return nil
	}
	certificate, err := tls.X509KeyPair(secret.Data[certKey], secret.Data[privateKey])
	if err != nil {
		return fmt.Errorf("parse key pair: %w", err)
	}
	s.current.Store(&held{certificate: certificate, version: secret.ResourceVersion})
	if err := os.WriteFile(filepath.Join(s.markerDir, certKey), secret.Data[certKey], 0o600); err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	klog.FromContext(ctx).Info("Serving certificate loaded", "not-after", certificate.Leaf.NotAfter)
	return nil
}

// errNotReady is what clients see in the first moments of an installation.
var errNotReady = errors.New("the certificate has not been issued yet")

// GetCertificate is the tls.Config hook.
func (s *Source) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	h := s.current.Load()
	if h == nil {
		return nil, errNotReady
	}
	return &h.certificate, nil
}

// ReadyCheck is healthy when a certificate is served and its CA is in the webhook's configuration.
func (s *Source) ReadyCheck(*http.Request) error {
	select {
	case <-s.ready:
	default:
		return errNotReady
	}
	if s.current.Load() == nil {
		return errNotReady
	}
	return nil
}
