// Runs mlp.husk on the CPU, as examples/hello does in C: four rows of 32 numbers, and for each row
// the ten numbers that the model returns.
//
//	go run . ../../build/mlp.husk
package main

import (
	"fmt"
	"os"

	"husk"
)

func run(path string) error {
	// The file holds native code: open only files that you trust.
	engine, err := husk.NewEngine(husk.Options{AllowHostImages: true})
	if err != nil {
		return err
	}
	program, err := engine.Open(path)
	if err != nil {
		return err
	}
	session, err := program.NewSession(husk.SessionOptions{})
	if err != nil {
		return err
	}
	defer session.Close()

	x := make([]float32, 4*32)
	for i := range x {
		x[i] = 0.01 * float32(i)
	}
	outputs, err := session.Run(0, husk.Slice(x, 4, 32))
	if err != nil {
		return err
	}
	y, err := husk.Elements[float32](outputs[0])
	if err != nil {
		return err
	}
	for columns := int(outputs[0].Sizes[1]); len(y) > 0; y = y[columns:] {
		for _, number := range y[:columns] {
			fmt.Printf(" %7.4f", number)
		}
		fmt.Println()
	}
	return nil
}

func main() {
	path := "mlp.husk"
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	if err := run(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
