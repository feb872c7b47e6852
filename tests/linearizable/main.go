// Command linearizable checks recorded histories of registers.
//
//	linearizable [-timeout 60s] FILE...
//
// A file holds the history of one register, a JSON object a line for each operation. The register is a znode that begins
// with the value 0 in version 0. No two operations put the same value. A read has `value` and `version`. A write has
// `put`, and `version` is that after it. A cas has `put` and `from`, the version that it demands, which an answer before
// it has shown; without `version` the server refused it. Without `return` the operation has no answer: it took effect at
// any time after its call, or never. `missing` says that the server did not know the znode.
//
// For each file it prints `linearizable`, `not-linearizable` or `undecided`, the number of operations, and the file. Beside a
// history that is not linearizable it writes a picture, as HTML. The exit status is 1 for such a history, and 2 if a file
// cannot be read.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	Client  int    `json:"client"`
	Kind    string `json:"kind"`
	Put     *int64 `json:"put,omitempty"`
	From    *int64 `json:"from,omitempty"`
	Call    *int64 `json:"call"`
	Return  *int64 `json:"return,omitempty"`
	Value   *int64 `json:"value,omitempty"`
	Version *int64 `json:"version,omitempty"`
	Missing bool   `json:"missing,omitempty"`
}

// parse reads a line, and says what is wrong in it.
func parse(line string) (op operation, err error) {
	decoder := json.NewDecoder(strings.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&op); err != nil {
		return op, err
	}
	changes := op.Kind == "write" || op.Kind == "cas"
	hasAnswer := op.Version != nil || op.Missing
	switch {
	case op.Kind != "read" && !changes:
		return op, fmt.Errorf("kind %q must be read, write or cas", op.Kind)
	case op.Call == nil:
		return op, errors.New("call is missing: the time when the operation began")
	case op.Return != nil && *op.Return < *op.Call:
		return op, fmt.Errorf("return %d must not be before call %d", *op.Return, *op.Call)
	case changes != (op.Put != nil):
		return op, errors.New("put must be in each write and cas, and in no read")
	case (op.Kind == "cas") != (op.From != nil):
		return op, errors.New("from must be in each cas, and nowhere else")
	case op.Return == nil && (hasAnswer || !changes):
		return op, errors.New("return is missing: only a write or cas can have no answer. Leave out a read that has none")
	case op.Return != nil && !hasAnswer && op.Kind != "cas":
		return op, errors.New("version or missing must be in an answer; only a cas can be refused")
	}
	return op, nil
}

// read reads the history of a register.
func read(file string) (history []porcupine.Operation, err error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	lines, puts := bufio.NewScanner(opened), map[int64]int{0: 0}
	for number := 1; lines.Scan(); number++ {
		op, err := parse(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", file, number, err)
		}
		if op.Put != nil {
			if first, used := puts[*op.Put]; used {
				return nil, fmt.Errorf("%s, line %d: put %d must be another value, line %d has it (line 0: the beginning)",
					file, number, *op.Put, first)
			}
			puts[*op.Put] = number
		}
		entry := porcupine.Operation{ClientId: op.Client, Input: op, Call: *op.Call, Return: math.MaxInt64}
		if op.Return != nil {
			entry.Return = *op.Return
		}
		history = append(history, entry)
	}
	if nth := unshown(history); nth >= 0 {
		return nil, fmt.Errorf("%s, line %d: from must be a version that an answer before it has shown", file, nth+1)
	}
	return history, lines.Err()
}

// unshown finds a cas that demands a version which no answer before it has shown.
func unshown(history []porcupine.Operation) int {
	shown := map[int64]int64{0: math.MinInt64}
	for _, entry := range history {
		if version := entry.Input.(operation).Version; version != nil {
			if first, ok := shown[*version]; !ok || entry.Return < first {
				shown[*version] = entry.Return
			}
		}
	}
	return slices.IndexFunc(history, func(entry porcupine.Operation) bool {
		op := entry.Input.(operation)
		if op.From == nil {
			return false
		}
		first, ok := shown[*op.From]
		return !ok || first >= entry.Call
	})
}

// check judges the history in a file, and returns the number of its operations too.
func check(file string, timeout time.Duration) (porcupine.CheckResult, int, error) {
	history, err := read(file)
	if err != nil {
		return porcupine.Unknown, 0, err
	}
	result := porcupine.CheckOperationsTimeout(model(history), history, timeout)
	if result == porcupine.Illegal {
		_, info := porcupine.CheckOperationsVerbose(model(history), history, timeout)
		err = porcupine.VisualizePath(model(history), info, file+".html")
	}
	return result, len(history), err
}

var words = map[porcupine.CheckResult]string{
	porcupine.Ok: "linearizable", porcupine.Illegal: "not-linearizable", porcupine.Unknown: "undecided",
}

// run checks all files, and returns the exit status.
func run(files []string, timeout time.Duration, out, problems io.Writer) (status int) {
	for _, file := range files {
		result, number, err := check(file, timeout)
		if err != nil {
			fmt.Fprintln(problems, "linearizable:", err)
			return 2
		}
		if result == porcupine.Illegal {
			status = 1
		}
		fmt.Fprintln(out, words[result], number, file)
	}
	return status
}

func main() {
	timeout := flag.Duration("timeout", time.Minute, "the longest time for one file")
	flag.Parse()
	os.Exit(run(flag.Args(), *timeout, os.Stdout, os.Stderr))
}
