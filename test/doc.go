// Package test looks at Tube from outside: it builds the binary, starts it as a
// process on free loopback ports, talks to it with the clients that users have
// (franz-go, sarama, kcat) and with raw sockets, kills it and starts it again.
//
// A test gets a node from newNode, which ends with the test. TEST_TUBE names a
// binary to test instead of the one built from this tree; TEST_LOGS a folder for
// all that the nodes say.
package test
