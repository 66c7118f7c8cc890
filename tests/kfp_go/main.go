// Verifies packages by Kubeflow's own code: parsed as its API server does, compiled to an Argo workflow by its
// argocompiler, and that validated as Argo does, which the server lets it do before it creates a run.
//
// Prints a line a package; the exit status is 1 if any is refused.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/kubeflow/pipelines/backend/src/apiserver/model"
	"github.com/kubeflow/pipelines/backend/src/apiserver/template"
	"gopkg.in/yaml.v3"
)

const release = "kubeflow 2.0.5"

func main() {
	status := 0
	for _, path := range os.Args[1:] {
		answer := "accepted"
		if err := verify(path); err != nil {
			answer = "REFUSED: " + strings.Join(strings.Fields(err.Error()), " ")
			status = 1
		}
		fmt.Printf("%s: %s: %s\n", release, path, answer)
	}
	os.Exit(status)
}

func verify(path string) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("server: breaks down: %v", cause)
		}
	}()
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	pipeline, err := template.New(data)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	if !pipeline.IsV2() {
		return errors.New("server: takes it for a workflow of Kubeflow Pipelines 1")
	}
	// The server passes over a document that it cannot read, without a word.
	given, err := countDocuments(data)
	if err != nil {
		return err
	}
	if read, err := countDocuments(pipeline.Bytes()); err != nil || read != given {
		return fmt.Errorf("server: reads %d of %d documents: %v", read, given, err)
	}
	run := &model.Run{DisplayName: "verify"}
	workflow, err := pipeline.RunWorkflow(run, template.RunWorkflowOptions{RunId: "00000000-0000-0000-0000-000000000000"})
	if err != nil {
		return fmt.Errorf("compiler: %w", err)
	}
	if err := workflow.Validate(false, false); err != nil {
		return fmt.Errorf("Argo: %w", err)
	}
	return nil
}

func countDocuments(data []byte) (int, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for count := 0; ; {
		var document any
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return count, nil
		} else if err != nil {
			return count, err
		}
		if document != nil {
			count++
		}
	}
}
