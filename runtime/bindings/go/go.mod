module husk

go 1.19
