module mczk.io/tests/linearizable

go 1.25.10

require github.com/anishathalye/porcupine v1.3.1
