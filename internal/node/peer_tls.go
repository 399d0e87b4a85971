package node

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tube-mq/tube/internal/config"
	"github.com/tube-mq/tube/internal/record"
)

// peerTLS is mutual TLS between nodes as the settings want it; nil: plaintext.
func peerTLS(c *config.Config) (*tls.Config, error) {
	if !c.PeerTLS() {
		return nil, nil
	}
	pem, err := os.ReadFile(c.PeerTLSCA)
	if err != nil {
		return nil, fmt.Errorf("peer-tls-ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("peer-tls-ca: %s holds no certificate (PEM)", c.PeerTLSCA)
	}
	own := &certificate{certFile: c.PeerTLSCert, keyFile: c.PeerTLSKey}
	cert, err := own.get()
	if err != nil {
		return nil, err
	}
	if err := namesNode(cert, c.NodeID, c.PeerTLSCert); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, RootCAs: roots, ClientCAs: roots,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own.get() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own.get() },
	}, nil
}

// namesNode tells at the start what the other nodes would tell later.
func namesNode(cert *tls.Certificate, node record.NodeID, file string) error {
	want := fmt.Sprintf("node-%d.tube", node)
	for _, name := range cert.Leaf.DNSNames {
		if name == want {
			return nil
		}
	}
	for _, u := range cert.Leaf.URIs {
		if u.Host == want || u.Opaque == want || u.Path == want {
			return nil
		}
	}
	return fmt.Errorf("peer-tls-cert: %s is not the certificate of node %d: it has to name %s, and names %q", file, node, want, cert.Leaf.DNSNames)
}

// certificate reads a certificate from files, again when they have changed, so that
// one that is about to end can be replaced while the node runs.
type certificate struct {
	certFile, keyFile string

	mu       sync.Mutex
	now      *tls.Certificate
	modified time.Time
	looked   time.Time
}

// lookEvery is how often the file's time is looked at.
const lookEvery = 10 * time.Second

// get returns the newest certificate that can be read; an error only if there never
// was one.
func (c *certificate) get() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != nil && time.Since(c.looked) < lookEvery {
		return c.now, nil
	}
	c.looked = time.Now()
	info, err := os.Stat(c.certFile)
	if err == nil && c.now != nil && info.ModTime().Equal(c.modified) {
		return c.now, nil
	}
	var next tls.Certificate
	if err == nil {
		next, err = tls.LoadX509KeyPair(c.certFile, c.keyFile)
	}
	switch {
	case err == nil:
		c.now, c.modified = &next, info.ModTime()
	case c.now == nil:
		return nil, fmt.Errorf("peer-tls-cert: %w", err)
	}
	return c.now, nil // half-written: it is looked at again
}
