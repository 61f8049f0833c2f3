//go:build tools

// Package tools names the program that is built, so that go.mod and go.sum cover exactly what it needs.
package tools

import _ "k8s.io/kube-state-metrics/v2"
