// Command coredns is the cluster's DNS server: upstream CoreDNS with only the plugins that its Corefile names.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

// Plugins run in this order for each query, whatever their order in the Corefile.
func init() {
	dnsserver.Directives = []string{
		"reload", "health", "ready", "errors", "loop", "cache", "hosts", "kubernetes", "forward",
	}
}

func main() { coremain.Run() }
