package command

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// Security says how to reach a listener: files with certificates in PEM, and a login by SASL. All of it is
// optional. Token is for OAUTHBEARER; with IsDelegated, name and password are a delegation token's; KeyTable,
// Realm and KerberosConfig are for GSSAPI, to the service "kafka".
type Security struct {
	CA             string `json:"ca"`
	Certificate    string `json:"certificate"`
	Mechanism      string `json:"mechanism"`
	Username       string `json:"username"`
	Password       string `json:"password"`
	Token          string `json:"token"`
	IsDelegated    bool   `json:"is_delegated"`
	KeyTable       string `json:"key_table"`
	Realm          string `json:"realm"`
	KerberosConfig string `json:"kerberos_config"`
}

// TLS returns the configuration of encrypted connections, or nil for plaintext.
func (s Security) TLS() (*tls.Config, error) {
	if s.CA == "" {
		return nil, nil
	}
	data, err := os.ReadFile(s.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s has no certificate", s.CA)
	}
	config := &tls.Config{RootCAs: roots}
	if s.Certificate != "" {
		// One file has the key and the certificate.
		own, err := tls.LoadX509KeyPair(s.Certificate, s.Certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}
