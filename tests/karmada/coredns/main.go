// A CoreDNS with only the plugins that the rig's clusters need.
package main

import (
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/rewrite"
	_ "github.com/coredns/coredns/plugin/template"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
)

// The order in which plugins see a query, whatever the Corefile's. The template answers what no other did, so it is last.
func init() {
	dnsserver.Directives = []string{
		"bind", "ready", "health", "errors", "log", "cache",
		"rewrite", "hosts", "kubernetes", "forward", "template",
	}
}

func main() { coremain.Run() }
