// Package command is the face that every program of this module shows to the tests: one command as JSON on
// stdin, one result as JSON on stdout, or a message on stderr and a non-zero exit code.
package command

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"time"
)

// Timeout bounds each program: a broker that does not answer fails the test instead of hanging it.
const Timeout = 40 * time.Second

// RetentionMs and ByteRate are what the verb "administer" sets.
const (
	RetentionMs = "7000000"
	ByteRate    = 5_000_000
)

// Header is one header of a record; a nil Value is null and an empty one is empty.
type Header struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// Message is a record; bytes are base64 in JSON, and nil is null.
type Message struct {
	Key         []byte   `json:"key"`
	Value       []byte   `json:"value"`
	Headers     []Header `json:"headers"`
	TimestampMs int64    `json:"timestamp_ms"`
	Offset      int64    `json:"offset"`
}

// Command says what to do; each verb reads the fields it needs. Messages are of partition 0; with a pause they
// are produced ChunkMessages at a time.
type Command struct {
	Verb        string    `json:"verb"`
	Bootstrap   string    `json:"bootstrap"`
	Topic       string    `json:"topic"`
	Codec       string    `json:"codec"`
	Version     string    `json:"version"`
	Idempotent  bool      `json:"idempotent"`
	Offset      int64     `json:"offset"`
	Count       int       `json:"count"`
	TimestampMs int64     `json:"timestamp_ms"`
	PauseMs     int64     `json:"pause_ms"`
	Messages    []Message `json:"messages"`
	Security    Security  `json:"security"`
}

// Verb performs a command and returns what is printed as JSON.
type Verb func(command Command) (any, error)

// ChunkMessages is how many messages are produced between two pauses.
const ChunkMessages = 50

// InChunks hands all messages to produce, with the command's pauses in between.
func InChunks[T any](command Command, messages []T, produce func([]T) error) error {
	if command.PauseMs == 0 {
		return produce(messages)
	}
	for start := 0; start < len(messages); start += ChunkMessages {
		if err := produce(messages[start:min(start+ChunkMessages, len(messages))]); err != nil {
			return err
		}
		time.Sleep(time.Duration(command.PauseMs) * time.Millisecond)
	}
	return nil
}

// Run performs the command on stdin with the verb of its name and ends the program.
func Run(verbs map[string]Verb) {
	var command Command
	if err := json.NewDecoder(os.Stdin).Decode(&command); err != nil {
		fail(fmt.Errorf("stdin holds no command: %w", err))
	}
	verb, ok := verbs[command.Verb]
	if !ok {
		fail(fmt.Errorf("verb %q is not one of this client's", command.Verb))
	}
	time.AfterFunc(Timeout, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("no end of %q within %s", command.Verb, Timeout))
	})
	result, err := verb(command)
	if err != nil {
		fail(fmt.Errorf("%s: %w", command.Verb, err))
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
