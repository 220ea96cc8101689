module akri.sh/tools/language

go 1.26.0
