package pull

// NoticeAcknowledged is the name of a [Notice]: over MQTT it comes under it, like answers.
const NoticeAcknowledged = "acknowledged"

// Notice tells a client that watches that messages were acknowledged by another way: in
// its own inbox, or in that of another client by somebody of the same user name. It is
// always in JSON.
type Notice struct {
	Clients []string `json:"clients"`        // whose inboxes they are, in the order of the first of each
	More    bool     `json:"more,omitempty"` // there are others, which are not named
}
