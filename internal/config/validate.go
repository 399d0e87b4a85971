package config

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// lookupTimeout bounds the resolution of a listening host name.
const lookupTimeout = 5 * time.Second

type lookup func(ctx context.Context, host string) ([]netip.Addr, error)

func lookupHost(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// validate returns what is wrong with the settings taken together.
func (c *Config) validate(ctx context.Context, resolve lookup) []error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	if c.Data == "" {
		bad("data: want a folder")
	}
	if !c.Insecure {
		for _, l := range []struct{ name, addr string }{{"kafka", c.Kafka}, {"http", c.HTTP}, {"peer", c.Peer}} {
			if l.name == "peer" && c.PeerTLS() {
				continue
			}
			if err := requireLoopback(ctx, l.name, l.addr, resolve); err != nil {
				problems = append(problems, err)
			}
		}
	}
	if some := c.PeerTLSCert != ""; some != (c.PeerTLSKey != "") || some != (c.PeerTLSCA != "") {
		bad("peer-tls-cert, peer-tls-key and peer-tls-ca go together: give all three, or none for plaintext between nodes")
	}
	if host, port, err := net.SplitHostPort(c.Kafka); err == nil && isWildcard(host) && c.AdvertiseKafka == "" {
		bad("kafka listens on every address (%s), so clients must be told which to connect to: give --advertise-kafka HOST:%s", c.Kafka, port)
	}
	if c.GroupMaxSessionTimeout < c.GroupMinSessionTimeout {
		bad("group-max-session-timeout (%s) is below group-min-session-timeout (%s)", FormatDuration(c.GroupMaxSessionTimeout), FormatDuration(c.GroupMinSessionTimeout))
	}
	if c.GroupConsumerSession <= c.GroupConsumerInterval || c.GroupConsumerSession > c.GroupMaxSessionTimeout {
		bad("group-consumer-session-timeout (%s) must be above group-consumer-heartbeat-interval (%s) and not above group-max-session-timeout (%s)", FormatDuration(c.GroupConsumerSession), FormatDuration(c.GroupConsumerInterval), FormatDuration(c.GroupMaxSessionTimeout))
	}
	if c.RequestMemoryBytes < c.MaxFrameBytes {
		bad("request-memory (%s) is below max-frame-size (%s): the largest request could never be read", FormatSize(c.RequestMemoryBytes), FormatSize(c.MaxFrameBytes))
	}
	if c.WALFileBytes < c.MaxFrameBytes+mib {
		bad("wal-file-size (%s) must be at least 1MiB above max-frame-size (%s), since a batch never spans two files", FormatSize(c.WALFileBytes), FormatSize(c.MaxFrameBytes))
	}
	problems = append(problems, c.validateDisk()...)
	if c.HasRole(RoleMaster) && len(c.Masters) > 0 && !c.lists(c.Masters) {
		bad("node-id %d has the role master but masters (%s) does not list it", c.NodeID, joinComma(c.Masters))
	}
	if !c.HasRole(RoleMaster) && len(c.Masters) == 0 {
		bad("a node without the role master needs --masters ID@HOST:PORT to find one")
	}
	return problems
}

// What a disk may take at least: shorter waits are no sign of anything.
const (
	minDiskSlow = 100 * time.Millisecond
	minDiskHung = time.Second
)

func (c *Config) validateDisk() []error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	slow, hung := c.DiskSlowAfter, c.DiskHungAfter
	if slow != 0 && slow < minDiskSlow {
		bad("disk-slow-after (%s) is below %s; 0 switches it off", FormatDuration(slow), FormatDuration(minDiskSlow))
	}
	if hung != 0 && hung < minDiskHung {
		bad("disk-hung-after (%s) is below %s; 0 switches it off", FormatDuration(hung), FormatDuration(minDiskHung))
	}
	if slow != 0 && hung != 0 && hung <= slow {
		bad("disk-hung-after (%s) must be above disk-slow-after (%s): the node would end before it could hand over", FormatDuration(hung), FormatDuration(slow))
	}
	return problems
}

func (c *Config) lists(ms []Master) bool {
	for _, m := range ms {
		if m.ID == c.NodeID {
			return true
		}
	}
	return false
}

// requireLoopback refuses an address that other machines may reach. A name is
// resolved: every address it has must be this machine's own.
func requireLoopback(ctx context.Context, name, addr string, resolve lookup) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%s: %q is not HOST:PORT", name, addr)
	}
	open := fmt.Errorf("%s would listen on %s, beyond this machine, without TLS and authentication: whoever reaches it could read and delete everything. Listen on 127.0.0.1:%s, or accept the risk with --insecure", name, addr, port)
	if host == "" {
		return open
	}
	addrs := []netip.Addr{}
	if ip, err := netip.ParseAddr(host); err == nil {
		addrs = append(addrs, ip)
	} else if addrs, err = resolve(ctx, host); err != nil {
		return fmt.Errorf("%s: cannot find the address of %q to listen on: %w", name, host, err)
	} else if len(addrs) == 0 {
		return fmt.Errorf("%s: %q has no address to listen on", name, host)
	}
	for _, a := range addrs {
		if !a.Unmap().WithZone("").IsLoopback() {
			return open
		}
	}
	return nil
}
