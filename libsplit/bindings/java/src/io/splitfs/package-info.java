// SPDX-License-Identifier: Apache-2.0
/**
 * Files of SplitFS volumes without copying: the calls of {@code splitfs.h}, with memory segments.
 *
 * <p>A snapshot is given back by the close of the arena that it was taken in, after which no segment of it can be looked at. Files are opened
 * by {@link io.splitfs.SplitFile}, for a channel does not say its descriptor.
 */
package io.splitfs;
