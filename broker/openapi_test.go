package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/mqtt-inbox/mqtt-inbox/inbox/pull"
)

// described are the types that the schemas of the description stand for.
var described = map[string]reflect.Type{
	"SummaryAnswer":  reflect.TypeFor[pull.SummaryAnswer](),
	"Tally":          reflect.TypeFor[pull.Tally](),
	"Count":          reflect.TypeFor[pull.Count](),
	"Mark":           reflect.TypeFor[pull.Mark](),
	"MessagesAnswer": reflect.TypeFor[pull.MessagesAnswer](),
	"Message":        reflect.TypeFor[pull.Message](),
	"Gap":            reflect.TypeFor[pull.Gap](),
	"AckRequest":     reflect.TypeFor[pull.AckRequest](),
	"AckAnswer":      reflect.TypeFor[pull.AckAnswer](),
	"ModeRequest":    reflect.TypeFor[pull.ModeRequest](),
	"ModeAnswer":     reflect.TypeFor[pull.ModeAnswer](),
	"DeleteAnswer":   reflect.TypeFor[pull.DeleteAnswer](),
	"PublishRequest": reflect.TypeFor[PublishRequest](),
	"PublishAnswer":  reflect.TypeFor[PublishAnswer](),
	"ErrorAnswer":    reflect.TypeFor[pull.ErrorAnswer](),
	"Error":          reflect.TypeFor[pull.Error](),
	"Health": reflect.TypeFor[struct {
		Status string `json:"status"`
	}](),
}

// asked are the types whose fields are the parameters of an operation.
var asked = map[string]reflect.Type{
	"summary": reflect.TypeFor[pull.SummaryRequest](),
	"pull":    reflect.TypeFor[pull.PullRequest](),
	"history": reflect.TypeFor[pull.HistoryRequest](),
}

func loadOpenAPI(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openAPIDocument)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// The description is one of OpenAPI, and its examples are as its schemas say.
func TestOpenAPIIsValid(t *testing.T) {
	if err := loadOpenAPI(t).Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Error(err)
	}
}

// What can be asked for is described, and what is described can be asked for.
func TestOpenAPIHasEveryRoute(t *testing.T) {
	var served, documented []string
	for _, r := range routes {
		served = append(served, r.method+" "+strings.TrimSuffix(r.path, "{$}"))
	}
	for path, item := range loadOpenAPI(t).Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(documented)
	if !slices.Equal(served, documented) {
		t.Errorf("served:\n%s\ndescribed:\n%s", strings.Join(served, "\n"), strings.Join(documented, "\n"))
	}
}

// names returns the names that the fields of a struct have in JSON, and those
// that are always there.
func names(kind reflect.Type) (all, always []string) {
	for i := range kind.NumField() {
		f := kind.Field(i)
		if f.Anonymous {
			more, moreAlways := names(f.Type)
			all, always = append(all, more...), append(always, moreAlways...)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		all = append(all, name)
		if options != "omitempty" {
			always = append(always, name)
		}
	}
	slices.Sort(all)
	slices.Sort(always)
	return all, always
}

func TestOpenAPISchemasAreTheTypes(t *testing.T) {
	schemas := loadOpenAPI(t).Components.Schemas
	if got, want := slices.Sorted(maps.Keys(schemas)), slices.Sorted(maps.Keys(described)); !slices.Equal(got, want) {
		t.Errorf("schemas: %v, want %v", got, want)
	}
	for name, schema := range schemas {
		all, always := names(described[name])
		properties := slices.Sorted(maps.Keys(schema.Value.Properties))
		if !slices.Equal(properties, all) {
			t.Errorf("%s: properties %v, want %v", name, properties, all)
		}
		required := slices.Sorted(slices.Values(schema.Value.Required))
		if !slices.Equal(required, always) {
			t.Errorf("%s: required %v, want %v", name, required, always)
		}
	}
}

func TestOpenAPIParametersAreTheFields(t *testing.T) {
	found := 0
	for path, item := range loadOpenAPI(t).Paths.Map() {
		for _, operation := range item.Operations() {
			request, ok := asked[operation.OperationID]
			if !ok {
				continue
			}
			found++
			var parameters []string
			for _, p := range operation.Parameters {
				if p.Value.Name != parameterClient {
					parameters = append(parameters, p.Value.Name)
				}
			}
			slices.Sort(parameters)
			if all, _ := names(request); !slices.Equal(parameters, all) {
				t.Errorf("%s: parameters %v, want %v", path, parameters, all)
			}
		}
	}
	if found != len(asked) {
		t.Errorf("%d operations were found, want %d", found, len(asked))
	}
}

// Each example is one that a program in Go can read into the type.
func TestOpenAPIExamplesDecode(t *testing.T) {
	decoded := 0
	decode := func(where string, content openapi3.Content) {
		media := content["application/json"]
		if media == nil || media.Schema.Ref == "" {
			return
		}
		examples := []any{media.Example}
		for _, e := range media.Examples {
			examples = append(examples, e.Value.Value)
		}
		kind := described[media.Schema.Ref[strings.LastIndex(media.Schema.Ref, "/")+1:]]
		for _, example := range examples {
			if example == nil {
				continue
			}
			text, err := json.Marshal(example)
			if err != nil {
				t.Fatal(err)
			}
			dec := json.NewDecoder(bytes.NewReader(text))
			dec.DisallowUnknownFields()
			if err := dec.Decode(reflect.New(kind).Interface()); err != nil {
				t.Errorf("%s: %v: %s", where, err, text)
			}
			decoded++
		}
	}
	doc := loadOpenAPI(t)
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.RequestBody != nil {
				decode(method+" "+path, operation.RequestBody.Value.Content)
			}
			decode(method+" "+path, operation.Responses.Value("200").Value.Content)
		}
	}
	for status, response := range doc.Components.Responses {
		decode(status, response.Value.Content)
	}
	if decoded < 20 {
		t.Errorf("%d examples were found", decoded)
	}
}

// The description has every status that goes with an error, and names its code.
func TestOpenAPIHasEveryError(t *testing.T) {
	doc := loadOpenAPI(t)
	known := doc.Components.Schemas["Error"].Value.Properties["code"].Value.Description
	for code, status := range codes {
		if code == pull.CodeUnknownOperation {
			continue // there are paths for that
		}
		response := doc.Components.Responses[strconv.Itoa(status)]
		if response == nil || !strings.Contains(*response.Value.Description, code+":") || !strings.Contains(known, code) {
			t.Errorf("%d does not tell of %s", status, code)
		}
	}
}

// docs/protocol.md says the same.
func TestProtocolOverHTTP(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, r := range routes[1:] {
		path, _, _ := strings.Cut(r.path, "{$}")
		if !strings.Contains(text, "`"+r.method+" "+path) {
			t.Errorf("it does not tell of %s %s", r.method, r.path)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\d{3}) \\|").FindAllStringSubmatch(text, -1) {
		if status, err := strconv.Atoi(row[2]); err != nil || codes[row[1]] != status {
			t.Errorf("%s has status %d, and not %s", row[1], codes[row[1]], row[2])
		}
	}
	for code, status := range codes {
		if !strings.Contains(text, fmt.Sprintf("| `%s` | %d |", code, status)) && !strings.Contains(text, fmt.Sprintf("`%s` (%d)", code, status)) {
			t.Errorf("it does not tell of %s, %d", code, status)
		}
	}
	for what, kind := range map[string]reflect.Type{"request": described["PublishRequest"], "answer": described["PublishAnswer"]} {
		example := regexp.MustCompile("(?s)```json http-publish-" + what + "\n(.*?)```").FindStringSubmatch(text)
		if example == nil {
			t.Fatalf("there is no example of a %s to publish", what)
		}
		dec := json.NewDecoder(strings.NewReader(example[1]))
		dec.DisallowUnknownFields()
		if err := dec.Decode(reflect.New(kind).Interface()); err != nil {
			t.Errorf("%s: %v", example[1], err)
		}
	}
}

// What the broker really answers is as the description says.
func TestOpenAPIDescribesTheAnswers(t *testing.T) {
	f := serveHTTP(t, httpOptions())
	f.receiver("alice", "chat/#")
	id := f.publish("chat/a", "\x00 \" \u2028", as("bob", "x"))
	f.publish("chat/b", "2", as("bob", "x"))
	schemas := loadOpenAPI(t).Components.Schemas
	for _, test := range []struct {
		method, path, body string
		status             int
		schema             string
	}{
		{"GET", "/health", "", 200, "Health"},
		{"GET", "/v1/inboxes/alice/summary", "", 200, "SummaryAnswer"},
		{"GET", "/v1/inboxes/alice/messages", "", 200, "MessagesAnswer"},
		{"GET", "/v1/history", "", 200, "MessagesAnswer"},
		{"POST", "/v1/inboxes/alice/acknowledge", `{"all":true}`, 200, "AckAnswer"},
		{"GET", "/v1/inboxes/alice/summary", "", 200, "SummaryAnswer"},
		{"PUT", "/v1/inboxes/alice/mode", `{"mode":"pull"}`, 200, "ModeAnswer"},
		{"GET", "/v1/inboxes/alice/mode", "", 200, "ModeAnswer"},
		{"POST", "/v1/messages", `{"topic":"chat/a","payload_base64":"/w=="}`, 200, "PublishAnswer"},
		{"DELETE", "/v1/history/" + id, "", 200, "DeleteAnswer"},
		{"GET", "/v1/history", "", 200, "MessagesAnswer"},
		{"GET", "/v1/nothing", "", 404, "ErrorAnswer"},
		{"GET", "/v1/inboxes/nobody/summary", "", 404, "ErrorAnswer"},
	} {
		got := f.ask(test.method, test.path, test.body)
		var value any
		if err := json.Unmarshal(got.body, &value); err != nil || got.status != test.status {
			t.Errorf("%s %s: status %d, %v: %s", test.method, test.path, got.status, err, got.body)
			continue
		}
		if err := schemas[test.schema].Value.VisitJSON(value, openapi3.EnableJSONSchema2020()); err != nil {
			t.Errorf("%s %s: %v", test.method, test.path, err)
		}
	}
}

func TestOpenAPIIsServed(t *testing.T) {
	f := serveHTTP(t, httpOptions())
	if got := f.ask("GET", "/openapi.json", nil); got.status != http.StatusOK || !bytes.Equal(got.body, openAPIDocument) || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("status %d, %d bytes", got.status, len(got.body))
	}
	// The text for people names every route, too.
	text := string(f.ask("GET", "/", nil).body)
	for _, r := range routes[1:] {
		if !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool {
			words := strings.Fields(line)
			return len(words) >= 2 && words[0] == r.method && words[1] == r.path
		}) {
			t.Errorf("GET / does not tell of %s %s", r.method, r.path)
		}
	}
}
