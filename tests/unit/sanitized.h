/*
 * sanitized: whether a sanitizer that has its own malloc and checks what the C
 * library reads and writes is built in.  clang has no __SANITIZE_ macros.
 */
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#define SANITIZED \
	(__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED 0
#endif
