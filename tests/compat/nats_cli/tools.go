//go:build tools

// Package tools names the program that is built from here, so that go.mod and go.sum pin its modules.
package tools

import _ "github.com/nats-io/natscli/nats"
