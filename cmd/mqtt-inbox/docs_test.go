package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// named is a test as docs/guarantees.md names it: a package, then a function
// and perhaps its subtest, or a clause of the suite for stores.
var named = regexp.MustCompile("`((?:broker|cmd|hooks|inbox)[a-z/-]*) ([^`]+)`")

// Every promise names tests that exist.
func TestDocsNameTestsThatExist(t *testing.T) {
	const root, suite = "../..", "inbox/storetest"
	text, err := os.ReadFile(filepath.Join(root, "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	// A name may stand at the end of a line and go on in the next.
	mentions := named.FindAllStringSubmatch(strings.Join(strings.Fields(string(text)), " "), -1)
	if len(mentions) < 100 {
		t.Fatalf("%d tests are named: the pattern does not find them", len(mentions))
	}
	clauses := read(t, filepath.Join(root, suite), "run.go").texts
	maps.Copy(clauses, read(t, filepath.Join(root, suite), "kept.go").texts)
	known := map[string]source{}
	for _, m := range mentions {
		dir, name := m[1], m[2]
		if dir == suite && !strings.HasPrefix(name, "Test") {
			if !clauses[name] {
				t.Errorf("%s has no clause %q", suite, name)
			}
			continue
		}
		if _, ok := known[dir]; !ok {
			known[dir] = read(t, filepath.Join(root, dir), "*_test.go")
		}
		function, subtest, _ := strings.Cut(name, "/")
		if !known[dir].functions[function] {
			t.Errorf("package %s has no test %s", dir, function)
		}
		if subtest != "" && !known[dir].texts[subtest] {
			t.Errorf("%s in package %s has no subtest %q", function, dir, subtest)
		}
	}
}

// source is what some files of a package declare and say.
type source struct {
	functions, texts map[string]bool
}

func read(t *testing.T, dir, pattern string) source {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	s := source{functions: map[string]bool{}, texts: map[string]bool{}}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil {
					s.functions[n.Name.Name] = true
				}
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					s.texts[text] = true
				}
			}
			return true
		})
	}
	return s
}
