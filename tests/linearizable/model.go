package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// register is the state of a znode.
type register struct{ version, value int64 }

func is(answer *int64, wanted int64) bool { return answer != nil && *answer == wanted }

// answered says whether an operation with an answer can be the next one, and what the register is after it.
func answered(now register, op operation) (bool, register) {
	switch {
	case op.Missing:
		return false, now
	case op.Kind == "read":
		return is(op.Value, now.value) && is(op.Version, now.version), now
	case op.Kind == "cas" && *op.From != now.version:
		return op.Version == nil, now
	}
	next := register{now.version + 1, *op.Put}
	return is(op.Version, next.version), next
}

// claims is what the answers of a history say: which value each version has, which version each value, and the last version.
type claims struct {
	value, version map[int64]int64
	last           int64
}

func claimsOf(history []porcupine.Operation) claims {
	known := claims{value: map[int64]int64{}, version: map[int64]int64{}}
	for _, entry := range history {
		op := entry.Input.(operation)
		value := op.Put
		if op.Kind == "read" {
			value = op.Value
		}
		if op.Version != nil && value != nil {
			known.value[*op.Version], known.version[*value] = *value, *op.Version
			known.last = max(known.last, *op.Version)
		}
	}
	// A cas that is refused from the last version that is shown shows that there is another one.
	isNewer := func(entry porcupine.Operation) bool {
		op := entry.Input.(operation)
		return op.Return != nil && op.Version == nil && !op.Missing && is(op.From, known.last)
	}
	if slices.ContainsFunc(history, isNewer) {
		known.last++
	}
	return known
}

// open says the same of a write or cas without an answer. Tried at any place, 20 of them would have 2^20 results. Each
// version has one writer, so all answers together leave few places: where they show its value, or where they show none. At
// the last version nothing needs it any more: then it counts as one that never took effect.
func (known claims) open(now register, op operation) (bool, register) {
	next := register{now.version + 1, *op.Put}
	if now.version >= known.last {
		return true, now
	}
	if op.Kind == "cas" && now.version != *op.From {
		return false, now
	}
	value, shown := known.value[next.version]
	if _, elsewhere := known.version[*op.Put]; !shown && !elsewhere {
		return true, next
	}
	return shown && value == *op.Put, next
}

func model(history []porcupine.Operation) porcupine.Model {
	known := claimsOf(history)
	return porcupine.Model{
		Init: func() any { return register{} },
		Step: func(state, input, _ any) (bool, any) {
			now, op := state.(register), input.(operation)
			if op.Return == nil {
				return pair(known.open(now, op))
			}
			return pair(answered(now, op))
		},
		DescribeOperation: func(input, _ any) string {
			text, _ := json.Marshal(input)
			return string(text)
		},
		DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

func pair(possible bool, next register) (bool, any) { return possible, next }
