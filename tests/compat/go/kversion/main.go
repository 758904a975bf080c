// Prints what franz-go knows of releases, and what brokers answer to ApiVersions, as JSON by name.
//
//	kversion table              {"2.8": {"0": 9, ...}, ...}: the highest version of each request
//	kversion ask HOST:PORT ...  {"HOST:PORT": {"versions": {"0": 9, ...}, "guess": "v2.8"}, ...}
package main

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

type answer struct {
	Versions map[string]int16 `json:"versions"`
	Guess    string           `json:"guess"`
}

func versions(of *kversion.Versions) map[string]int16 {
	found := map[string]int16{}
	of.EachMaxKeyVersion(func(key, version int16) { found[strconv.Itoa(int(key))] = version })
	return found
}

func table() map[string]map[string]int16 {
	found := map[string]map[string]int16{}
	for _, name := range kversion.VersionStrings() {
		found[strings.TrimPrefix(name, "v")] = versions(kversion.FromString(name))
	}
	return found
}

func ask(address string) answer {
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	response, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, client)
	check(err)
	known := kversion.FromApiVersionsResponse(response)
	return answer{versions(known), known.VersionGuess()}
}

func main() {
	var found any
	if os.Args[1] == "table" {
		found = table()
	} else {
		answers := map[string]answer{}
		for _, address := range os.Args[2:] {
			answers[address] = ask(address)
		}
		found = answers
	}
	check(json.NewEncoder(os.Stdout).Encode(found))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
