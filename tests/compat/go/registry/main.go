// Registers schemas with franz-go's client of schema registries, and prints what it was answered.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/sr"
)

const (
	order   = `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}`
	text    = `{"type":"object","properties":{"a":{"type":"string"}}}`
	integer = `{"type":"object","properties":{"a":{"type":"integer"}}}`
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	ctx := context.Background()
	client := must(sr.NewClient(sr.URLs(os.Args[1])))
	made := must(client.CreateSchema(ctx, "go-avro-value", sr.Schema{Schema: order, Type: sr.TypeAvro}))
	found := must(client.SchemaByID(ctx, made.ID))
	must(client.CreateSchema(ctx, "go-json-value", sr.Schema{Schema: text, Type: sr.TypeJSON}))
	_, refused := client.CreateSchema(ctx, "go-json-value", sr.Schema{Schema: integer, Type: sr.TypeJSON})
	check := must(client.CheckCompatibility(ctx, "go-json-value", 1, sr.Schema{Schema: integer, Type: sr.TypeJSON}))
	framed := must(new(sr.ConfluentHeader).AppendEncode(nil, made.ID, nil))
	must(0, json.NewEncoder(os.Stdout).Encode(map[string]any{
		"version":    made.Version,
		"schema":     found.Schema,
		"refused":    refused != nil,
		"compatible": check.Is,
		"framed":     framed,
		"id":         made.ID,
		"subjects":   must(client.Subjects(ctx)),
	}))
}
