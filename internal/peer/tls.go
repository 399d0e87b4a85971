package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tube-mq/tube/internal/record"
)

// nodeName is what a node's certificate must say.
func nodeName(node record.NodeID) string { return fmt.Sprintf("node-%d.tube", node) }

// nodeNames returns the names of nodes in a certificate.
func nodeNames(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, u := range c.URIs {
		names = append(names, u.Host, u.Opaque, u.Path) // spiffe://node-1.tube, tube:node-1.tube, node-1.tube
	}
	return slices.DeleteFunc(names, func(name string) bool {
		id, isNode := strings.CutPrefix(name, "node-")
		id, isTube := strings.CutSuffix(id, ".tube")
		node, isID := parseNode(id)
		return !isNode || !isTube || !isID || nodeName(node) != name
	})
}

// serverTLS wants whoever shows a certificate to be a node. Which one it says to
// be is not known before its request: see notOf.
func (t *Transport) serverTLS() *tls.Config {
	cfg := t.cfg.TLS.Clone()
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) > 0 && len(nodeNames(s.PeerCertificates[0])) == 0 {
			return errors.New("the certificate names no node (node-<id>.tube)")
		}
		return also(t.cfg.TLS, s)
	}
	return cfg
}

// clientTLS wants the server to be the target, or any node if target is nil.
func (t *Transport) clientTLS(target *record.NodeID, protocols ...string) *tls.Config {
	cfg := t.cfg.TLS.Clone()
	cfg.NextProtos = protocols
	if target != nil {
		cfg.ServerName = nodeName(*target)
	}
	// Go would compare the host name, where ours is the node's. So the chain is
	// verified here, in the same way but for the name.
	unverified := cfg.InsecureSkipVerify
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("the peer shows no certificate")
		}
		if !unverified {
			if err := verifyChain(s.PeerCertificates, cfg); err != nil {
				return err
			}
		}
		names := nodeNames(s.PeerCertificates[0])
		switch {
		case target == nil && len(names) == 0:
			return errors.New("the peer's certificate names no node (node-<id>.tube)")
		case target != nil && !slices.Contains(names, nodeName(*target)):
			return fmt.Errorf("the peer's certificate does not name %s, but %q", nodeName(*target), names)
		}
		return also(t.cfg.TLS, s)
	}
	return cfg
}

func verifyChain(certs []*x509.Certificate, cfg *tls.Config) error {
	opts := x509.VerifyOptions{Roots: cfg.RootCAs, Intermediates: x509.NewCertPool()}
	if cfg.Time != nil {
		opts.CurrentTime = cfg.Time()
	}
	for _, c := range certs[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := certs[0].Verify(opts); err != nil {
		return fmt.Errorf("the peer's certificate is not valid: %w", err)
	}
	return nil
}

// also asks the configuration's own check.
func also(cfg *tls.Config, s tls.ConnectionState) error {
	if cfg.VerifyConnection == nil {
		return nil
	}
	return cfg.VerifyConnection(s)
}

// notOf says why a caller is not the node that it says, as far as a certificate
// tells.
func notOf(s *tls.ConnectionState, node record.NodeID) string {
	if s == nil || len(s.PeerCertificates) == 0 || slices.Contains(nodeNames(s.PeerCertificates[0]), nodeName(node)) {
		return ""
	}
	return fmt.Sprintf("the certificate is not that of node %d: it names %q", node, nodeNames(s.PeerCertificates[0]))
}
