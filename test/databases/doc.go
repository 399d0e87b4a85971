// Package databases runs client/outbox against the servers of PostgreSQL and MariaDB. It
// is a module of its own, so that no driver is a dependency of Tube.
//
// Each test starts a server of its own, on an empty folder and a socket in it, as another
// user if it is run by root; a server that is not installed is skipped, with a word.
package databases
