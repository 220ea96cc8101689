package soap

// AnswerWith is Answer with a nonce of the test's choice.
func AnswerWith(c Challenge, credentials Credentials, method, path, cnonce string) string {
	return c.answer(credentials, method, path, cnonce)
}
