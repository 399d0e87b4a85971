package tube

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Where servers are if neither an option nor the environment says it.
const (
	defaultHTTP  = "127.0.0.1:9080"
	defaultKafka = "127.0.0.1:9092"
)

// QueueOption is an option of Queue.
type QueueOption interface{ applyQueue(*queueConfig) error }

// ProducerOption is an option of NewProducer.
type ProducerOption interface{ applyProducer(*producerConfig) error }

// ConsumerOption is an option of NewConsumer.
type ConsumerOption interface{ applyConsumer(*consumerConfig) error }

// ServerOption is an option of whatever talks to a node's HTTP address: Queue and
// NewProducer.
type ServerOption interface {
	QueueOption
	ProducerOption
}

// common is what queues and producers have in common.
type common struct {
	servers []string
	http    *http.Client
	log     *slog.Logger
	timeout time.Duration
}

type serverOption func(*common) error

func (f serverOption) applyQueue(c *queueConfig) error       { return f(&c.common) }
func (f serverOption) applyProducer(c *producerConfig) error { return f(&c.common) }

type queueOption func(*queueConfig) error

func (f queueOption) applyQueue(c *queueConfig) error { return f(c) }

type producerOption func(*producerConfig) error

func (f producerOption) applyProducer(c *producerConfig) error { return f(c) }

type consumerOption func(*consumerConfig) error

func (f consumerOption) applyConsumer(c *consumerConfig) error { return f(c) }

// Servers names the HTTP addresses of nodes: host:port, http://host:port or
// https://host:port. Any one node is enough to begin with; the others are asked when
// it does not answer. Default: TUBE_HTTP (several with commas), else 127.0.0.1:9080.
func Servers(addresses ...string) ServerOption {
	return serverOption(func(c *common) error {
		if len(addresses) == 0 {
			return errors.New("Servers: none given")
		}
		c.servers = addresses
		return nil
	})
}

// HTTPClient is used instead of the package's own. Its transport must speak HTTP/2,
// without TLS too if a server is not https: Run needs streams.
func HTTPClient(client *http.Client) ServerOption {
	return serverOption(func(c *common) error { c.http = client; return nil })
}

// CallTimeout bounds single calls, such as Ack or the sending of one batch, all
// attempts included for the former. Default 30 s.
func CallTimeout(d time.Duration) ServerOption {
	return serverOption(func(c *common) error { c.timeout = d; return positive("CallTimeout", d) })
}

// Logger is told what the caller is not told otherwise: reconnects, and confirmations
// that came too late. Default: nothing is logged.
func Logger(l *slog.Logger) ServerOption {
	return serverOption(func(c *common) error { c.log = l; return nil })
}

// finish fills defaults in and checks.
func (c *common) finish() error {
	if c.servers == nil {
		c.servers = fromEnv("TUBE_HTTP", defaultHTTP)
	}
	for i, s := range c.servers {
		at, err := baseURL(s)
		if err != nil {
			return err
		}
		c.servers[i] = at
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.timeout == 0 {
		c.timeout = 30 * time.Second
	}
	return nil
}

func baseURL(server string) (string, error) {
	s := strings.TrimSuffix(strings.TrimSpace(server), "/")
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("Servers: %q is no address; give host:port or http(s)://host:port", server)
	}
	return s, nil
}

// fromEnv is a variable's list, or def.
func fromEnv(name, def string) []string {
	if v := os.Getenv(name); v != "" {
		return strings.Split(v, ",")
	}
	return []string{def}
}

func positive(what string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%s: %v; it must be more than 0", what, d)
	}
	return nil
}

func within(what string, n, least, most int) error {
	if n < least || n > most {
		return fmt.Errorf("%s: %d; %d to %d can be", what, n, least, most)
	}
	return nil
}
