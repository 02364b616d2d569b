module example

go 1.19

require husk v0.0.0

replace husk => ../../runtime/bindings/go
