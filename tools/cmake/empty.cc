// The source of targets that need one: of precompiled headers.
