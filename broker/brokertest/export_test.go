package brokertest

// Claim is claim.
var Claim = claim
