module github.com/mqtt-inbox/mqtt-inbox

go 1.26
