package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// file writes a history into a file.
func file(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "1.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// line is an operation in the format of the files, from words such as "write put=1 call=1 return=2 version=1".
func line(words string) string {
	fields := strings.Fields(words)
	text := fmt.Sprintf(`{"client":0,"kind":%q`, fields[0])
	for _, field := range fields[1:] {
		name, value, _ := strings.Cut(field, "=")
		text += fmt.Sprintf(`,%q:%s`, name, value)
	}
	return text + "}"
}

func TestNamedHistories(t *testing.T) {
	for _, row := range []struct{ name, verdict, history string }{
		{"nothing happens", "linearizable", ``},
		{"one after another", "linearizable", `
			read call=1 return=2 value=0 version=0
			write put=1 call=3 return=4 version=1
			read call=5 return=6 value=1 version=1
			cas from=1 put=2 call=7 return=8 version=2
			cas from=1 put=3 call=9 return=10
			read call=11 return=12 value=2 version=2`},
		{"a read beside a write shows either value", "linearizable", `
			write put=1 call=1 return=9 version=1
			read call=2 return=3 value=0 version=0
			read call=4 return=5 value=1 version=1`},
		{"a cas beside a write finds either version", "linearizable", `
			write put=1 call=1 return=9 version=1
			cas from=0 put=2 call=2 return=8
			read call=3 return=4 value=1 version=1
			cas from=1 put=3 call=5 return=8 version=2`},
		{"a stale read", "not-linearizable", `
			write put=1 call=1 return=2 version=1
			read call=3 return=4 value=0 version=0`},
		{"a stale read after a fresh one", "not-linearizable", `
			write put=1 call=1 return=9 version=1
			read call=2 return=3 value=1 version=1
			read call=4 return=5 value=0 version=0`},
		{"a lost write, which a read shows", "not-linearizable", `
			write put=1 call=1 return=2 version=1
			write put=2 call=3 return=4 version=2
			read call=5 return=6 value=1 version=1`},
		{"a lost write, whose version another one gets", "not-linearizable", `
			write put=1 call=1 return=2 version=1
			write put=2 call=3 return=4 version=1
			read call=5 return=6 value=2 version=1`},
		{"a lost write that comes back", "not-linearizable", `
			write put=1 call=1 return=2 version=1
			read call=3 return=4 value=0 version=0
			read call=5 return=6 value=1 version=1`},
		{"a cas succeeds twice from one version", "not-linearizable", `
			cas from=0 put=1 call=1 return=9 version=1
			cas from=0 put=2 call=2 return=8 version=1`},
		{"a cas succeeds from a version that is over", "not-linearizable", `
			write put=1 call=1 return=2 version=1
			cas from=0 put=2 call=3 return=4 version=2`},
		{"a cas is refused although its version is there", "not-linearizable", `
			cas from=0 put=1 call=1 return=2
			read call=3 return=4 value=0 version=0`},
		{"two servers accept writes of their own", "not-linearizable", `
			write put=1 call=1 return=9 version=1
			write put=2 call=2 return=8 version=1
			read call=10 return=11 value=1 version=1
			read call=12 return=13 value=2 version=1`},
		{"a value that no client wrote", "not-linearizable", `
			write put=1 call=1 return=2 version=1
			read call=3 return=4 value=7 version=1`},
		{"a server does not know the znode", "not-linearizable", `
			write put=1 call=1 return=2 version=1
			read call=3 return=4 missing=true`},
		{"a write finds no znode", "not-linearizable", `write put=1 call=1 return=2 missing=true`},
		{"an open write takes effect late", "linearizable", `
			write put=1 call=1
			read call=3 return=4 value=0 version=0
			write put=2 call=5 return=6 version=1
			read call=7 return=8 value=1 version=2`},
		{"an open write never takes effect", "linearizable", `
			write put=1 call=1
			write put=2 call=3 return=4 version=1
			read call=5 return=6 value=2 version=1`},
		{"an open write takes effect, and another one covers it", "linearizable", `
			write put=1 call=1
			write put=2 call=3 return=4 version=2
			read call=5 return=6 value=2 version=2`},
		{"an open write takes effect, vanishes and comes back", "not-linearizable", `
			write put=1 call=1
			read call=3 return=4 value=1 version=1
			read call=5 return=6 value=0 version=0
			read call=7 return=8 value=1 version=1`},
		{"an open write takes effect, vanishes under another one, and comes back", "not-linearizable", `
			write put=1 call=1
			read call=3 return=4 value=1 version=1
			write put=2 call=5 return=6 version=2
			read call=7 return=8 value=1 version=3`},
		{"an open write takes effect before its call", "not-linearizable", `
			read call=1 return=2 value=1 version=1
			write put=1 call=3`},
		{"an open write takes effect before its call, unseen", "not-linearizable", `
			write put=2 call=1 return=2 version=2
			write put=1 call=3`},
		{"an open cas takes effect late", "linearizable", `
			cas from=0 put=1 call=1
			read call=3 return=4 value=0 version=0
			read call=5 return=6 value=1 version=1`},
		{"an open cas is too late", "linearizable", `
			cas from=0 put=1 call=1
			write put=2 call=3 return=4 version=1
			read call=5 return=6 value=2 version=1`},
		{"an open cas takes effect from a version that is over", "not-linearizable", `
			write put=2 call=1 return=2 version=1
			cas from=0 put=1 call=3
			read call=5 return=6 value=1 version=2`},
		{"an open write takes effect, and a refused cas alone shows it", "linearizable", `
			write put=1 call=1
			cas from=0 put=2 call=3 return=4
			cas from=0 put=3 call=5`},
		{"a refused cas shows an open write, and a read does not", "not-linearizable", `
			write put=1 call=1
			cas from=0 put=2 call=3 return=4
			read call=5 return=6 value=0 version=0`},
		{"one open write is there for two versions", "not-linearizable", `
			write put=1 call=1
			write put=2 call=3 return=4 version=3`},
	} {
		t.Run(row.name, func(t *testing.T) {
			var lines []string
			for words := range strings.Lines(row.history) {
				if strings.TrimSpace(words) != "" {
					lines = append(lines, line(words))
				}
			}
			path, out, status := file(t, lines...), &bytes.Buffer{}, 0
			if row.verdict == "not-linearizable" {
				status = 1
			}
			if len(lines) == 0 {
				_ = os.Truncate(path, 0)
			}
			got := run([]string{path}, time.Minute, out, os.Stderr)
			if want := fmt.Sprintln(row.verdict, len(lines), path); out.String() != want || got != status {
				t.Errorf("exit status %d, %q instead of %d, %q", got, out, status, want)
			}
			if _, err := os.Stat(path + ".html"); (err == nil) != (status == 1) {
				t.Errorf("the picture: %v", err)
			}
		})
	}
}

func TestTheRecorderOfChaosAndThisProgramAgreeOnTheFormat(t *testing.T) {
	out := &bytes.Buffer{}
	if status := run([]string{"recorded.jsonl"}, time.Minute, out, os.Stderr); status != 0 {
		t.Errorf("exit status %d: %s", status, out)
	}
}

func TestWrongLinesAreNamed(t *testing.T) {
	good := line("write put=1 call=1 return=2 version=1")
	for words, problem := range map[string]string{
		"delete call=1 return=2":                        `kind "delete" must be read, write or cas`,
		"read call=1 return=2 value=0 version=0 zxid=7": `unknown field "zxid"`,
		"read return=2 value=0 version=0":               "call is missing",
		"read call=3 return=2 value=0 version=0":        "return 2 must not be before call 3",
		"read call=3 put=2 return=4 value=0 version=0":  "put must be in each write and cas",
		"write call=3":                                     "put must be in each write and cas",
		"cas put=2 call=3":                                 "from must be in each cas",
		"write put=2 from=1 call=3":                        "from must be in each cas",
		"read call=3":                                      "return is missing",
		"write put=2 call=3 version=2":                     "return is missing",
		"write put=2 call=3 return=4":                      "version or missing must be in an answer",
		"cas put=2 from=3 call=3 return=4":                 "from must be a version that an answer before it has shown",
		"cas put=2 from=1 call=2 return=4":                 "from must be a version that an answer before it has shown",
		"write put=1 call=3 return=4 version=2":            "put 1 must be another value, line 1 has it",
		"write put=0 call=3 return=4 version=2":            "put 0 must be another value, line 0 has it",
		`read call=3 return=4 value="x" version=2`:         "cannot unmarshal string",
		"read call=3 return=4 value=99999999999999999999 ": "cannot unmarshal number",
	} {
		problems, out := &bytes.Buffer{}, &bytes.Buffer{}
		status := run([]string{file(t, good, line(words))}, time.Minute, out, problems)
		if text := problems.String(); status != 2 || !strings.Contains(text, "line 2: ") || !strings.Contains(text, problem) {
			t.Errorf("%s: exit status %d, %s", words, status, text)
		}
	}
	if status := run([]string{"nothing.jsonl"}, time.Minute, &bytes.Buffer{}, &bytes.Buffer{}); status != 2 {
		t.Errorf("a file that does not exist: exit status %d", status)
	}
}

// plain is the same model without the knowledge of all answers: an operation without an answer takes effect anywhere after
// its call, which can be the end of the history.
var plain = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, input, _ any) (bool, any) {
		now, op := state.(register), input.(operation)
		if op.Return != nil {
			return pair(answered(now, op))
		}
		if op.Kind == "cas" && *op.From != now.version {
			return true, now
		}
		return true, register{now.version + 1, *op.Put}
	},
}

// random plays clients that use a register at the same time. Some operations get no answer, and take effect later or never.
func random(chance *rand.Rand, operations, clients, opens int) (history []porcupine.Operation) {
	now, seen, late := register{}, make([]int64, clients), []operation{}
	apply := func(op *operation, answer bool) {
		matches := op.Kind != "cas" || *op.From == now.version
		if op.Kind != "read" && matches {
			now = register{now.version + 1, *op.Put}
		}
		if answer && matches {
			state := now
			op.Version = &state.version
			if op.Kind == "read" {
				op.Value = &state.value
			}
		}
	}
	for n := range operations {
		client := chance.IntN(clients)
		at := int64(n) * 10
		op := operation{Client: client, Kind: []string{"read", "read", "write", "cas"}[chance.IntN(4)], Call: &at}
		put, from := int64(n+1), seen[client]
		if op.Kind != "read" {
			op.Put = &put
		}
		if op.Kind == "cas" {
			op.From = &from
		}
		end := int64(math.MaxInt64)
		if isOpen := op.Kind != "read" && opens > 0 && chance.IntN(operations) < 2*opens; isOpen {
			opens--
			late = append(late, op)
		} else {
			// Calls and returns overlap with those of the neighbours, and the effect lies between them.
			begin := at - int64(chance.IntN(25))
			end = at + int64(chance.IntN(25))
			op.Call, op.Return = &begin, &end
			apply(&op, true)
			if op.Version != nil {
				seen[client] = *op.Version
			}
		}
		history = append(history, porcupine.Operation{ClientId: client, Input: op, Call: *op.Call, Return: end})
		if len(late) > 0 && chance.IntN(8) == 0 {
			apply(&late[0], false)
			late = late[1:]
		}
	}
	return history
}

// broken changes one answer of a history.
func broken(chance *rand.Rand, history []porcupine.Operation) []porcupine.Operation {
	history = slices.Clone(history)
	nth := chance.IntN(len(history))
	op := history[nth].Input.(operation)
	if op.Return == nil || op.Version == nil {
		return history
	}
	other := *op.Version + int64(chance.IntN(3)) - 1
	switch {
	case op.Kind == "cas" && chance.IntN(2) == 0:
		op.Version = nil
	case op.Kind == "read" && chance.IntN(2) == 0:
		op.Value = &other
	default:
		op.Version = &other
	}
	history[nth].Input = op
	return history
}

func TestKnowledgeOfAllAnswersChangesNoVerdict(t *testing.T) {
	counts := map[bool]int{}
	for seed := range uint64(20_000) {
		chance := rand.New(rand.NewPCG(seed, 1))
		history := random(chance, 4+chance.IntN(8), 3, chance.IntN(5))
		if seed%2 == 0 {
			history = broken(chance, history)
		}
		if unshown(history) >= 0 {
			continue
		}
		want := porcupine.CheckOperations(plain, history)
		if got := porcupine.CheckOperations(model(history), history); got != want {
			t.Fatalf("seed %d: %v instead of %v: %v", seed, got, want, history)
		}
		if seed%2 == 1 && !want {
			t.Fatalf("seed %d: %v is linearizable", seed, history)
		}
		counts[want]++
	}
	if counts[false] < 2_000 || counts[true] < 10_000 {
		t.Errorf("the histories show too little: %v", counts)
	}
}

// The longest histories that chaos records: a register ends after 20 operations without an answer, or 5,000 operations.
func TestLongHistoriesAreDecidedInTime(t *testing.T) {
	for seed := range uint64(6) {
		chance := rand.New(rand.NewPCG(seed, 2))
		history := random(chance, 5_000, 4, 20)
		begun := time.Now()
		if result := porcupine.CheckOperationsTimeout(model(history), history, time.Minute); result != porcupine.Ok {
			t.Errorf("seed %d: %s", seed, result)
		}
		// The last answer is stale: everything before it fits.
		stale := slices.IndexFunc(history[4_900:], func(entry porcupine.Operation) bool {
			op := entry.Input.(operation)
			return op.Kind == "read" && *op.Version > 100
		})
		op := history[4_900+stale].Input.(operation)
		old := *op.Version - 100
		op.Version = &old
		history[4_900+stale].Input = op
		if result := porcupine.CheckOperationsTimeout(model(history), history, time.Minute); result != porcupine.Illegal {
			t.Errorf("seed %d, with a stale read: %s", seed, result)
		}
		t.Logf("seed %d: %s", seed, time.Since(begun))
	}
}

func TestTimeIsBounded(t *testing.T) {
	history := random(rand.New(rand.NewPCG(1, 3)), 5_000, 4, 20)
	if result := porcupine.CheckOperationsTimeout(model(history), history, time.Nanosecond); result != porcupine.Unknown {
		t.Errorf("%s in a nanosecond", result)
	}
}
