package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// rabbitServer is where packages of Debian put it.
const rabbitServer = "/usr/lib/rabbitmq/bin/rabbitmq-server"

// serveRabbitMQ runs the RabbitMQ that is installed, with a name service of its own,
// both on ports that are free. They end with this process.
func serveRabbitMQ(ctx context.Context, dir string, ready func(string, int)) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	env := append(os.Environ(), "HOME="+dir, "ERL_EPMD_PORT="+ports[0], "ERL_EPMD_ADDRESS=127.0.0.1")
	names := child("epmd", env)
	if err := names.Start(); err != nil {
		return fmt.Errorf("start epmd: %w", err)
	}
	defer func() { _ = names.Process.Kill(); _ = names.Wait() }()
	conf := filepath.Join(dir, "rabbitmq")
	if err := os.WriteFile(conf+".conf", []byte("listeners.tcp.1 = 127.0.0.1:"+ports[1]+"\nlog.console = false\n"), 0o644); err != nil {
		return err
	}
	server := child(rabbitServer, append(env,
		"RABBITMQ_ALLOW_INPUT=1", // it becomes the virtual machine instead of waiting for it
		"RABBITMQ_NODENAME=bench@localhost", "RABBITMQ_DIST_PORT="+ports[2], "RABBITMQ_CONFIG_FILE="+conf, "RABBITMQ_CONF_ENV_FILE=/dev/null",
		"RABBITMQ_MNESIA_BASE="+dir, "RABBITMQ_LOG_BASE="+dir, "RABBITMQ_PID_FILE="+filepath.Join(dir, "pid"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(dir, "plugins"), "RABBITMQ_SERVER_START_ARGS=-noinput"))
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		return fmt.Errorf("start RabbitMQ: %w", err)
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	for range 600 {
		conn, err := amqp.Dial("amqp://guest:guest@127.0.0.1:" + ports[1])
		if err == nil {
			conn.Close()
			ready("amqp://127.0.0.1:"+ports[1], server.Process.Pid)
			<-ctx.Done()
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("RabbitMQ was not ready in a minute")
}

// child is a command that ends with this process.
func child(path string, env []string) *exec.Cmd {
	cmd := exec.Command(path)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return ports, nil
}

type rabbitMQ struct {
	conn     *amqp.Connection
	channel  *amqp.Channel
	queue    string
	confirms chan *amqp.DeferredConfirmation
	waiting  atomic.Int64
	failed   atomic.Int64
}

func openRabbitMQ(_ context.Context, host, queue string) (broker, error) {
	conn, err := amqp.Dial("amqp://guest:guest@" + host)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	b := &rabbitMQ{conn: conn, queue: queue, confirms: make(chan *amqp.DeferredConfirmation, maxPending)}
	if b.channel, err = conn.Channel(); err != nil {
		return nil, err
	}
	if _, err := b.channel.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		return nil, fmt.Errorf("declare the queue: %w", err)
	}
	if err := b.channel.Confirm(false); err != nil {
		return nil, err
	}
	go func() {
		for c := range b.confirms {
			if !c.Wait() {
				b.failed.Add(1)
			}
			b.waiting.Add(-1)
		}
	}()
	return b, nil
}

func (b *rabbitMQ) publish(value []byte) error {
	c, err := b.channel.PublishWithDeferredConfirm("", b.queue, false, false, amqp.Publishing{Body: value, DeliveryMode: amqp.Persistent})
	if err != nil {
		return err
	}
	b.waiting.Add(1)
	b.confirms <- c
	return nil
}

func (b *rabbitMQ) pending() int64 { return b.waiting.Load() }

func (b *rabbitMQ) flush() int64 {
	for b.waiting.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	return b.failed.Load()
}

// rabbitWindow is what of a quorum queue's messages one consumer may have: more than
// some thousands is slower.
const rabbitWindow = 2000

func (b *rabbitMQ) receive(ctx context.Context, messages int64) error {
	ch, err := b.conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(rabbitWindow, 0, false); err != nil {
		return err
	}
	in, err := ch.Consume(b.queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for range messages {
		select {
		case d, ok := <-in:
			if !ok {
				return errors.New("the channel was closed")
			}
			if err := d.Ack(false); err != nil {
				return err
			}
		case <-ctx.Done():
			return errors.New("not all messages came in time")
		}
	}
	return ch.Close() // it is answered behind the acknowledgements
}

func (b *rabbitMQ) close() { b.conn.Close() }
